package fsm

// Target is an object that an action is about, as far as the machine file tells.
type Target struct {
	// Manifest is the parameter that holds the object. Empty: the parameters apiVersion, kind,
	// namespace and name say which it is, as far as the action has them.
	Manifest string `json:"manifest,omitempty"`
	// Param is the parameter that says which fields it is about: a list of paths, or an object
	// that has them. Where it is left out, or there is none, these are Fields.
	Param string `json:"param,omitempty"`
	// Fields are paths such as spec.replicas; none: the object is read or written as a whole.
	Fields []string `json:"fields,omitempty"`
	// Waits says of an action that reads that it waits until the fields say something.
	Waits bool `json:"waits,omitempty"`
}
