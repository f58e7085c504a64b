// Package diag reads a YAML file strictly, and says of each defect in which line and column it is, by a
// stable code, and what to do about it. It knows where the values of a file stand, and nothing of what they mean.
//
// It imports api alone, for the head that all files have. Begin with Decode, which makes a Source; Source.Finding
// makes a Diagnostic at a path of the file, and Source.Report is what the user gets of them.
package diag
