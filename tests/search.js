// The search of the built site without a browser: node tests/search.js build/docs QUERY... prints the files found, as JSON.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const page = {
  document: { readyState: "loading", addEventListener() {}, getElementById: () => ({}), createElement: () => ({}) },
  _ready() {},
  SPHINX_HIGHLIGHT_ENABLED: false,
  _: (text) => text,
  _removeChildren() {},
};
page.window = page;
vm.createContext(page);
for (const file of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"]) {
  vm.runInContext(fs.readFileSync(path.join(site, file), "utf8"), page);
}
const found = queries.map((query) => {
  page.query = query;
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", page);
  return results.reverse().map((result) => result[5].replace(/\.md$/, "") + result[2]);
});
console.log(JSON.stringify(found));
