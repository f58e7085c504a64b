// Package schema holds the JSON Schemas of the file kinds, for editors and other
// tools. They are generated from the types and their comments; the programs here
// decode and check by themselves, and say more.
package schema

import _ "embed" // for the files

// Machine is the JSON Schema (draft 2020-12) of a machine file.
//
//go:embed machine.schema.json
var Machine []byte

// KindRegistry is the JSON Schema (draft 2020-12) of a kind registry file.
//
//go:embed kindregistry.schema.json
var KindRegistry []byte
