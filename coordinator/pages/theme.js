// Sets the chosen theme before the first paint. Classic, not a module: modules
// run after it.
'use strict';
(() => {
  let theme = '';
  try {
    theme = localStorage.getItem('gavel-theme') || '';
  } catch {
    // Storage may be forbidden; the system's theme applies then.
  }
  if (theme === 'light' || theme === 'dark') {
    document.documentElement.dataset.theme = theme;
  }
})();
