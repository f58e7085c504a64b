package copier

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// contentList is a list of custom resources that is decoded in one go. The one that it wraps parses the
// list, and then each item, several times over, to find kinds that every item of ours states itself.
type contentList struct{ unstructured.UnstructuredList }

// UnmarshalJSON replaces what was in the list.
func (l *contentList) UnmarshalJSON(data []byte) error {
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	l.UnstructuredList = unstructured.UnstructuredList{}
	l.SetUnstructuredContent(content)
	return nil
}

// creation is an object to create, and then the answer, which is decoded in one go like a list.
type creation struct{ unstructured.Unstructured }

// UnmarshalJSON replaces the object.
func (c *creation) UnmarshalJSON(data []byte) error {
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	c.SetUnstructuredContent(content)
	return nil
}
