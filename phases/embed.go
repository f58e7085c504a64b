// Package phases holds the machines that ship with phasegate, as the files
// that users read and copy. Nothing else belongs here.
package phases

import "embed"

// Files are the machine files by name.
//
//go:embed *.yaml
var Files embed.FS
