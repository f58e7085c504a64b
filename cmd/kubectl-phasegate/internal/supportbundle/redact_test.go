package supportbundle

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestObject(t *testing.T) {
	cases := map[string]struct{ why, object, want string }{
		"a pod": {why: "its environment and what it is started with may be secret, and are needed by nobody",
			object: `{kind: Pod, metadata: {name: p, annotations: {a/b: planted-1, phasegate.dev/retry: now}, managedFields: [{x: y}]},
				spec: {containers: [{image: i, env: [{name: N, value: planted-2}, {name: R, valueFrom: {secretKeyRef: {name: s, key: k}}}],
				args: ["--leader-elect=true", "--kubeconfig=planted-3", run, planted-4], command: [planted-5]}]}, status: {phase: Running}}`,
			want: `{kind: Pod, metadata: {name: p, annotations: {a/b: (left out), phasegate.dev/retry: now}},
				spec: {containers: [{image: i, env: [{name: N, value: (left out)}, {name: R, valueFrom: {secretKeyRef: {name: s, key: k}}}],
				args: ["--leader-elect=true", "--kubeconfig=(left out)", (left out), (left out)], command: (left out)}]}, status: {phase: Running}}`},
		"an MCP server": {why: "what is not known to be harmless is left out",
			object: `{kind: MCPServer, spec: {image: i, replicas: 2, args: [planted], env: [{name: a, value: b}], oidcConfig: {inline: {clientSecret: planted}}, future: {a: planted}}}`,
			want:   `{kind: MCPServer, spec: {image: i, replicas: 2, args: (left out), env: (left out), oidcConfig: (left out), future: (left out)}}`},
		"a migration": {why: "of Calico's objects it holds which differ and where, not what is in them",
			object: `{kind: DatastoreMigration, metadata: {annotations: {migration.projectcalico.org/saved-apiservice: planted}},
				status: {phase: Migrating, conflicts: "IPPool web: spec.cidr: 10.9.8.0/24 in v1, 10.9.7.0/24 in v3", machine: {result: '{"a":"planted"}', held: [v1Lock]}}}`,
			want: `{kind: DatastoreMigration, metadata: {annotations: {migration.projectcalico.org/saved-apiservice: (left out)}},
				status: {phase: Migrating, conflicts: "IPPool web: spec.cidr: (left out)", machine: {result: (left out), held: [v1Lock]}}}`},
		"a migration of an earlier version": {why: "it has a list; what cannot be read is left out",
			object: `{kind: DatastoreMigration, status: {conflicts: [{kind: IPPool, name: web, fields: ["spec.cidr: 10.9.8.0/24 in v1, 10.9.7.0/24 in v3"]}], older: {conflicts: {a: planted}}}}`,
			want:   `{kind: DatastoreMigration, status: {conflicts: "IPPool web: spec.cidr: (left out)", older: {conflicts: (left out)}}}`},
		"a migration on Calico's CRD": {why: "the same, where a condition describes each conflict",
			object: `{kind: DatastoreMigration, status: {conditions: [{type: Ready, message: "resolve 1 conflict"},
				{type: Conflict, message: "IPPool a/n differs between v1 and v3: spec.cidr: 10.9.8.0/24 in v1, 10.9.7.0/24 in v3; spec.x: [] in v1, [planted] in v3: edit or delete one side"}]}}`,
			want: `{kind: DatastoreMigration, status: {conditions: [{type: Ready, message: "resolve 1 conflict"},
				{type: Conflict, message: "IPPool a/n differs between v1 and v3: spec.cidr: (left out); spec.x: (left out): edit or delete one side"}]}}`},
		"a state": {why: "it holds what releases which effect, not with what; what was saved of another's object is that other's",
			object: `{kind: MachineState, spec: {machine: m, object: {name: o, uid: u}}, status: {phase: Migrating, result: '{"a":"planted"}',
				held: [v1Lock, 'app → Patch {"name":"planted"} ← {"n":"planted"}', 'b → Undo ← {"n":"planted"}', 'c → Undo'], saved: {status: '{"lock":{"mode":"Enforced"}}', apiService: planted}}}`,
			want: `{kind: MachineState, spec: {machine: m, object: {name: o, uid: u}}, status: {phase: Migrating, result: (left out),
				held: [v1Lock, app → Patch (left out), b → Undo ← (left out), c → Undo], saved: {status: '{"lock":{"mode":"Enforced"}}', apiService: (left out)}}}`},
		"a Secret that got in": {why: "none is read; if one came in, nothing of it would show", object: `{kind: Secret, data: {a: planted}, stringData: {b: planted}}`, want: `{kind: Secret, data: (left out), stringData: (left out)}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := parse(t, c.object)
			NewRedactor().Object(got)
			if diff := cmp.Diff(parse(t, c.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestText(t *testing.T) {
	r := NewRedactor()
	r.Object(parse(t, `{env: [{name: N, value: "s3cr3t-of-the-env"}, {name: M, value: "with \"quotes\" in it"}, {name: S, value: short}],
		conflicts: [{fields: ["spec.nets: [10.9.8.0/24] in v1, [] in v3"]}]}`))
	r.hash("customer-acme")
	quoted, err := json.Marshal(`with "quotes" in it`)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ why, text, want string }{
		"a value of before":    {why: "what was left out of an object is found in a log", text: "started with s3cr3t-of-the-env", want: "started with (left out)"},
		"in JSON":              {why: "logs are JSON", text: string(quoted), want: `"(left out)"`},
		"a short value":        {why: "it is a word, and would tear holes into everything", text: "a short log", want: "a short log"},
		"a conflict":           {why: "messages quote the first field that differs", text: "GlobalNetworkSet x (spec.nets: [10.9.8.0/24] in v1, [] in v3)", want: "GlobalNetworkSet x (spec.nets: (left out))"},
		"a name":               {why: "it is the same one everywhere, and nobody's", text: "GlobalNetworkSet customer-acme", want: "GlobalNetworkSet name-06c5cd41"},
		"a token":              {why: "nobody registered it", text: "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln here", want: "got (left out) here"},
		"a header":             {why: "of a request in a log", text: "Authorization: Bearer abcdefgh12345", want: "Authorization: (left out)"},
		"a password":           {why: "as programs print it", text: `{"password":"hunter2","a":1}`, want: `{"(left out)","a":1}`},
		"an address":           {why: "with a password in it", text: "dial postgres://u:hunter2@db:5432/x", want: "dial postgres(left out)db:5432/x"},
		"a key":                {why: "of a certificate", text: "-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----", want: "(left out)"},
		"nothing to leave out": {why: "a log is of use", text: `{"msg":"transition","from":"Pending"}`, want: `{"msg":"transition","from":"Pending"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, string(r.Text([]byte(c.text)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A bundle is read in a terminal. Its JSON stays the same data.
func TestHostileTexts(t *testing.T) {
	evil := "\x1b[2J\u009b\x7f\u202e\u200b\r\nb"
	c := &collector{redactor: NewRedactor(), missing: []string{evil}, files: map[string]any{"a\x1b.json": map[string]any{"message": evil}, "a.log": []byte(evil)}}
	b, err := c.bundle()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range b.Files {
		if i := strings.IndexFunc(name+string(data), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q holds what cannot be seen: %q", name, data)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(b.Files[`a\u001b.json`], &got); err != nil || got["message"] != evil {
		t.Errorf("other data: %q, %v", got["message"], err)
	}
}

// A secret is found in whatever way a program has written it.
func TestEncodings(t *testing.T) {
	for name, secret := range map[string]string{
		"signs": `p&ss<w>/or"d\+ü 100%`, "plain": "s3cr3t-of-the-env", "spaces": "two words & more", "emoji": "pass-\U0001F511-word", "encoded itself": "a%26b\\u0026&amp;c",
	} {
		r := NewRedactor()
		r.omit(secret, knownFrom)
		ascii := strconv.QuoteToASCII(secret)
		inJSON := func(text string) string {
			data, _ := json.Marshal(text) // a text never fails
			return string(data)
		}
		var exact bytes.Buffer
		enc := json.NewEncoder(&exact)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(secret); err != nil {
			t.Fatal(err)
		}
		var units, percents strings.Builder
		for _, unit := range utf16.Encode([]rune(secret)) {
			fmt.Fprintf(&units, `\u%04X`, unit)
		}
		for _, c := range []byte(secret) {
			fmt.Fprintf(&percents, "%%%02x", c)
		}
		for how, text := range map[string]string{
			"as it is": secret, "JSON": inJSON(secret), "JSON without HTML": exact.String(), "JSON of JavaScript": strings.ReplaceAll(exact.String(), "/", `\/`),
			"JSON, all escaped": units.String(), "Go": strconv.Quote(secret), "Go in ASCII": ascii,
			"JSON in JSON": inJSON(`{"a":` + inJSON(secret) + `}`), "three times": inJSON(inJSON(inJSON(secret))), "Go in JSON": inJSON("value " + ascii),
			"a query": url.QueryEscape(secret), "a path": url.PathEscape(secret), "all percents": percents.String(), "a query in JSON": inJSON("https://h/?q=" + url.QueryEscape(secret)),
			"HTML": html.EscapeString(secret), "JSON in HTML": html.EscapeString(inJSON(secret)),
			"Base64": base64.StdEncoding.EncodeToString([]byte(secret)), "Base64 of URLs": base64.RawURLEncoding.EncodeToString([]byte(secret)),
			"Base64 with more": base64.StdEncoding.EncodeToString([]byte("user:" + secret + "\n")), "Base64 of JSON": base64.StdEncoding.EncodeToString([]byte(inJSON(secret))),
			"Base64 in a path": "x/" + base64.RawURLEncoding.EncodeToString([]byte(secret)), "Base64 in JSON": strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(secret)), "/", `\/`),
			"Base64 in a query": url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				got := string(r.Text([]byte("before " + text + " after")))
				if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, leftOut) {
					t.Errorf("%s became %s", text, got)
				}
				if rest := strings.TrimSpace(strings.NewReplacer("before ", "", " after", "", leftOut, "").Replace(got)); len(rest) > 16 && !strings.Contains(how, "query in") {
					t.Errorf("of %s is left %s", text, rest)
				}
			})
		}
	}
}

func TestWriteIsReproducible(t *testing.T) {
	b := &Bundle{Files: map[string][]byte{"b.json": []byte("2"), "a/x.json": []byte("1")}}
	var first, second bytes.Buffer
	for _, to := range []*bytes.Buffer{&first, &second} {
		if err := b.Write(to, "bundle", time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files make other bytes")
	}
	zipped, err := gzip.NewReader(&first)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(zipped); err != nil || !bytes.Contains(all, []byte("bundle/a/x.json")) {
		t.Errorf("the archive does not hold its files: %v", err)
	}
}
