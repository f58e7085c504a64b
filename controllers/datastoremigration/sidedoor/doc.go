// Package sidedoor says what a side door is in a CRD: a second served version of v3, with v3's own schema and a mark that
// says whose it is. It decides on values what opens one, what closes it and why there can be none, and Change patches a
// CRD accordingly. It imports the API's constants, and knows no migration and no scope: which doors are opened, and
// when, is said in ../sidedoor.go. Start with Open.
package sidedoor
