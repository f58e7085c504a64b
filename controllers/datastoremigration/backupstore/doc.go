// Package backupstore keeps a stream of objects in Secrets of one namespace, numbered, with an index in the last one that
// says what is in the others: without it, a backup is none. The same objects make the same Secrets, so that a writer that
// dies is simply begun again. It imports the API's constants, and knows no machine: when a backup is made, and what may
// be deleted after it, is said in ../backup.go. Start with Store and Writer.
package backupstore
