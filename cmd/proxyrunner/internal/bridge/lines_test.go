package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	type line struct {
		Text  string
		Whole bool
	}
	for name, c := range map[string]struct {
		in   string
		want []line
		why  string
	}{
		"two":            {"a\nb\n", []line{{"a", true}, {"b", true}}, "one message each"},
		"no last end":    {"a\nb", []line{{"a", true}, {"b", true}}, "the end of the stream ends a line"},
		"carriage":       {"a\r\nb\n", []line{{"a", true}, {"b", true}}, "some write lines like that"},
		"empty":          {"\n\na\n", []line{{"", true}, {"", true}, {"a", true}}, "they are lines"},
		"just fits":      {"12345678\n", []line{{"12345678", true}}, "the limit is that of the line without its end"},
		"one too long":   {"123456789\nb\n", []line{{"12345678", false}, {"b", true}}, "the next line is not touched"},
		"much too long":  {strings.Repeat("x", 1<<18) + "\nb\n", []line{{"xxxxxxxx", false}, {"b", true}}, "it is passed over, not kept"},
		"nothing at all": {"", nil, "an end is an end"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
				in := newLines(source, 8)
				var got []line
				for {
					text, whole, err := in.next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, line{string(text), whole})
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s%s", diff, c.why)
				}
			}
		})
	}
}

// FuzzLines: whatever a server prints, no line is longer than the limit, and what
// is swapped into a message can be swapped out again.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n", "\n\n\r\n", `{"_meta":{"progressToken":"a","x":1},"y":[1,2]}`,
		`{"requestId":7,"requestId":8}`, `{"_meta":null}`, "[]\n{}", `{"jsonrpc":"2.0","id":"x","method":"` + strings.Repeat("y", 100),
	} {
		f.Add([]byte(seed), 16)
	}
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit = 1 + (limit&0xff+0x100)%0x100
		in := newLines(bytes.NewReader(data), limit)
		for {
			line, whole, err := in.next()
			if err != nil {
				break
			}
			if len(line) > limit || bytes.ContainsRune(line, '\n') {
				t.Fatalf("line %q with limit %d", line, limit)
			}
			if !whole {
				_ = in.id()
			}
			checkID(t, line)
			_, _ = decode(line)
		}
		for _, path := range [][]string{{"_meta", "progressToken"}, {"requestId"}} {
			swapBack(t, data, path)
		}
	})
}

// checkID compares the finder with a parser that holds the whole message.
func checkID(t *testing.T, line []byte) {
	t.Helper()
	var all map[string]json.RawMessage
	if json.Unmarshal(line, &all) != nil || bytes.ContainsRune(line, '\\') || bytes.Count(line, []byte(`"id"`)) > 1 {
		return // a name may be written with escapes, and twice
	}
	f := &idFinder{}
	f.feed(line)
	want := all["id"]
	if len(want) >= longestID || bytes.ContainsAny(want, "{[") {
		return // neither is an id
	}
	if got := bytes.TrimSpace(f.value); string(got) != string(want) {
		t.Fatalf("id %q of %q, want %q", got, line, want)
	}
}

// swapBack puts a number into a message, and back what was there.
func swapBack(t *testing.T, data []byte, path []string) {
	t.Helper()
	out, old := swap(data, 42, path...)
	if old == nil {
		if !bytes.Equal(out, data) {
			t.Fatalf("%q became %q, with nothing at %v", data, out, path)
		}
		return
	}
	if now := at(out, path...); string(now) != "42" {
		t.Fatalf("%q has %q at %v", out, now, path)
	}
	if back, _ := swap(out, old, path...); !same(t, back, data) {
		t.Fatalf("%q came back as %q", data, back)
	}
}

func same(t *testing.T, a, b []byte) bool {
	var left, right map[string]json.RawMessage
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		t.Fatalf("%q or %q is no object", a, b)
	}
	for name := range left {
		var l, r any
		if json.Unmarshal(left[name], &l) != nil || json.Unmarshal(right[name], &r) != nil || !reflect.DeepEqual(l, r) {
			return false
		}
	}
	return len(left) == len(right)
}
