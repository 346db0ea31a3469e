# cmake -DPAGES=FILE;FILE... -DCHART=FILE -DOUT=FILE.cc -P embed_pages.cmake: the files as CompiledPages() of pages.h.
set(data "")
set(table "")
set(index 0)
foreach(page IN LISTS PAGES CHART)
  get_filename_component(name ${page} NAME)
  if(page STREQUAL CHART)
    set(name chart.umd.js)
  endif()
  file(READ ${page} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  # The zero lets a file be empty; it is no part of it.
  string(APPEND data "constexpr unsigned char kBytes${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${name}\",\n     {reinterpret_cast<const char*>(kBytes${index}),\n"
                      "      sizeof kBytes${index} - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "#include \"coordinator/pages/pages.h\"\n\nnamespace gavel {\nnamespace {\n\n${data}\n"
                  "}  // namespace\n\nstd::span<const Page> CompiledPages() {\n"
                  "  static const Page pages[] = {\n${table}  };\n  return pages;\n}\n\n}  // namespace gavel\n")
