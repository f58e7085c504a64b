// Package charts holds the generated files of the Helm chart that programs need
// as well: the CRDs, whose schemas are the types of `self`.
package charts

import "embed"

// CRDs are the CRDs that the chart installs, one file each under phasegate/files/crds.
//
//go:embed phasegate/files/crds/*.yaml
var CRDs embed.FS
