package bridge

import "encoding/json"

// swap puts value where path leads in doc, and returns what was there. Where the
// path leads nowhere, doc comes back as it was, and old is nil.
func swap(doc json.RawMessage, value any, path ...string) (out, old json.RawMessage) {
	if len(path) == 0 {
		if out, err := json.Marshal(value); err == nil {
			return out, doc
		}
		return doc, nil
	}
	var fields map[string]json.RawMessage
	if len(doc) == 0 || json.Unmarshal(doc, &fields) != nil {
		return doc, nil
	}
	inner, there := fields[path[0]]
	if !there {
		return doc, nil
	}
	fields[path[0]], old = swap(inner, value, path[1:]...)
	if old == nil {
		return doc, nil
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return doc, nil
	}
	return out, old
}

// at reads what is where path leads in doc; nil if there is nothing.
func at(doc json.RawMessage, path ...string) json.RawMessage {
	_, old := swap(doc, nil, path...)
	return old
}
