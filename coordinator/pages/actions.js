// Actions on jobs, accelerators and the policy: each is confirmed in a dialog
// that says what it does, and its outcome is announced.
import {el} from './dom.js';
import {act} from './api.js';

const TEXTS = {
  hold: ['Hold', 'Takes it out of the queue, with a checkpoint. Release undoes it.'],
  release: ['Release', 'Puts it back into the queue.'],
  requeue: ['Requeue', 'Ends its processes with a checkpoint. It starts again in its turn.'],
  cancel: ['Cancel', 'Ends it for good. Nothing undoes this.'],
  drain: ['Drain', 'Starts nothing more there. Jobs that are there move or pause; none is killed.'],
  undrain: ['Resume', 'Gives it back to the cluster.'],
  policy: ['Set policy', 'Decides all later allocations. Jobs that it keeps go on.'],
};

// Resolves to true once the coordinator has done it; false: not confirmed.
// `more`: nodes shown in the dialog.
export function confirmAction({action, target, name, more, announce, done}) {
  const [word, effect] = TEXTS[action];
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const back = el('button', {type: 'button', class: 'button', autofocus: true},
      'Go back');
  const go = el('button', {type: 'button',
    class: `button strong${action === 'cancel' ? ' danger' : ''}`},
  action === 'cancel' ? 'Cancel the job' : word);
  const dialog = el('dialog', {class: 'dialog', 'aria-labelledby': 'dialog-title',
    'aria-describedby': 'dialog-text'},
  el('h2', {id: 'dialog-title'}, `${word}: ${name}?`),
  el('p', {id: 'dialog-text'}, effect), more || null, fault,
  el('div', {class: 'dialog-end'}, back, go));
  const opener = document.activeElement;
  back.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (opener && opener.isConnected) opener.focus();
  });
  go.addEventListener('click', async () => {
    go.disabled = true;
    fault.hidden = true;
    try {
      await act(action, target);
      dialog.close();
      announce(`${word}: done for ${name}`);
      if (done) done();
    } catch (error) {
      // 504: the coordinator has it. No status: it may have got it.
      fault.textContent = error.status && error.status !== 504 ?
        `It was not done: ${error.message}` :
        `It is not known whether it was done: ${error.message}`;
      fault.hidden = false;
      go.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

export const actionButton = (action, attributes, open) => el('button',
    {type: 'button', class: `button${action === 'cancel' ? ' danger' : ''}`,
      ...attributes, onclick: open}, TEXTS[action][0]);
