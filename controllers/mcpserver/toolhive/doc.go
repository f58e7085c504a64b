// Package toolhive makes runconfig.json for ToolHive's own proxyrunner, and what its pods need besides. The manager
// uses it with --proxy=toolhive.
//
// It knows no API server: the objects that a spec names come in as values. A field of the spec that the file cannot
// express is an error, because it could be a protection.
package toolhive
