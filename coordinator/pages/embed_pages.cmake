# cmake -DPAGES=FILE;FILE... -DCHART=FILE -DOUT=FILE.cc -P embed_pages.cmake: the files as CompiledPages() of pages.h.
# report.js becomes one script with the modules that it imports: a page that is opened as a file can't load modules.
set(report_modules dom.js format.js charts.js report.js)

set(data "")
set(table "")
set(index 0)
foreach(page IN LISTS PAGES CHART)
  get_filename_component(name ${page} NAME)
  if(page STREQUAL CHART)
    set(name chart.umd.js)
  endif()
  if(name STREQUAL "report.js")
    get_filename_component(folder ${page} DIRECTORY)
    set(bytes "")
    foreach(module IN LISTS report_modules)
      file(READ ${folder}/${module} text)
      string(REGEX REPLACE "import {[^}]*} from[ \n]+'[^']*';\n" "" text "${text}")
      string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
      string(HEX "${text}" text)
      string(APPEND bytes "${text}")
    endforeach()
  else()
    file(READ ${page} bytes HEX)
  endif()
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
