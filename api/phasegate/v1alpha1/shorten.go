package v1alpha1

// Shorten cuts s to at most limit characters, not bytes: the API server counts
// so, and refuses the whole status for one field that is too long. An ellipsis
// shows that it did.
func Shorten(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	return string(runes[:limit-1]) + "…"
}
