package printable

import "reflect"

// linesTag marks a field whose text has several lines: `printable:"lines"`.
const linesTag = "lines"

// Value is a copy of a value in which every text, also one deep inside, is a Line; of a field with the tag
// printable:"lines" a Text. Fields that are not exported stay as they are.
func Value[T any](v T) T {
	out := reflect.ValueOf(&v).Elem()
	out.Set(copied(out, Line))
	return v
}

func copied(v reflect.Value, show func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(show(v.String()))
	case reflect.Pointer, reflect.Interface:
		copyBehind(out, v, show)
	case reflect.Struct:
		copyFields(out, v, show)
	case reflect.Array:
		copyItems(out, v, show)
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			copyItems(out, v, show)
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for key, item := range v.Seq2() {
				out.SetMapIndex(copied(key, show), copied(item, show))
			}
		}
	}
	return out
}

func copyBehind(out, v reflect.Value, show func(string) string) {
	switch {
	case v.IsNil():
	case v.Kind() == reflect.Interface:
		out.Set(copied(v.Elem(), show))
	default:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(copied(v.Elem(), show))
	}
}

func copyFields(out, v reflect.Value, show func(string) string) {
	for field, item := range v.Fields() {
		if !field.IsExported() {
			continue
		}
		how := show
		if field.Tag.Get("printable") == linesTag {
			how = Text
		}
		out.FieldByIndex(field.Index).Set(copied(item, how))
	}
}

func copyItems(out, v reflect.Value, show func(string) string) {
	for i := range v.Len() {
		out.Index(i).Set(copied(v.Index(i), show))
	}
}
