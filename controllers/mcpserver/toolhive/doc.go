// Package toolhive makes what ToolHive's own proxyrunner runs from: its
// runconfig.json, and what its pods need besides. It is used where the manager runs
// with --proxy=toolhive.
//
// It knows no API server: the objects that a spec names come in as values. Names and
// formats are the program's; what a spec says and the file cannot say is an error,
// never left out, since that would be protection which nobody gives.
package toolhive
