# Where `gavel-dev setup` keeps the wheels: GAVEL_SITE_PACKAGES, empty when it has not run.
# The folder is keyed by the pinned versions, so clones share it and never mix versions.

file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/requirements-torch.txt gavel_pins REGEX "^torch==")
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/requirements-highs.txt gavel_highs_pin REGEX "^highsbox==")
list(APPEND gavel_pins ${gavel_highs_pin})
list(JOIN gavel_pins "-" gavel_cache_key)
string(REPLACE "==" "-" gavel_cache_key "${gavel_cache_key}")

if(DEFINED ENV{GAVEL_CACHE})
  set(gavel_cache_root "$ENV{GAVEL_CACHE}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(gavel_cache_root "$ENV{XDG_CACHE_HOME}/gavel")
else()
  set(gavel_cache_root "$ENV{HOME}/.cache/gavel")
endif()
set(GAVEL_CACHE_DIR "${gavel_cache_root}/${gavel_cache_key}")

file(GLOB GAVEL_SITE_PACKAGES ${GAVEL_CACHE_DIR}/venv/lib/python3*/site-packages)

# Headers of the oldest LibTorch that the public headers support, once `gavel-dev test` fetched them.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/oldest-torch.txt gavel_oldest_torch REGEX "^torch==")
string(REPLACE "==" "-headers-" gavel_oldest_torch "${gavel_oldest_torch}")
set(GAVEL_OLDEST_TORCH "${gavel_cache_root}/${gavel_oldest_torch}")
