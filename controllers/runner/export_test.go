package runner

// Unfit makes an error one that a person has to repair.
func Unfit(err error) error { return unfitError{err} }
