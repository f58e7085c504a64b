package toolhive

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// facts are values by path, the paths begin with an object of a server, and anyName stands for its name.
type facts map[string]string

const anyName = "NAME"

// phasePath is where a server says what it comes to.
const phasePath = "MCPServer.status.phase"

// object adds what somebody else than the API server and the controllers of Kubernetes says of one.
func (f facts) object(path string, obj map[string]any) {
	metadata := obj["metadata"].(map[string]any)
	f.add(path+".labels", metadata["labels"])
	f.add(path+".annotations", metadata["annotations"])
	f.add(path+".ownerReferences", metadata["ownerReferences"])
	if strings.HasPrefix(path, "StatefulSet/") { // the rest is the proxy's
		return
	}
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
			f.add(path+"."+key, obj[key])
		}
	}
}

// renamed puts a word in the place of the server's name.
func (f facts) renamed(server string) facts {
	out := facts{}
	for path, value := range f {
		out[strings.ReplaceAll(path, server, anyName)] = strings.ReplaceAll(value, server, anyName)
	}
	return out
}

// defaults are what the API server fills in.
var defaults = map[string]string{
	"clusterIP": "", "clusterIPs": "", "internalTrafficPolicy": "", "ipFamilies": "", "ipFamilyPolicy": "", "timeoutSeconds": "10800",
	"progressDeadlineSeconds": "600", "revisionHistoryLimit": "10", "maxSurge": "25%", "maxUnavailable": "25%", "dnsPolicy": "ClusterFirst",
	"restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccount": "", "imagePullPolicy": "IfNotPresent",
	"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "successThreshold": "1", "scheme": "HTTP", "defaultMode": "420",
	"uid": "", "lastTransitionTime": "",
	"message": "", // text for people, which differs throughout
}

// revision is an annotation of Kubernetes. v1beta1.AnnotationRestartedAt on pods has nobody asked for here: ToolHive's
// operator restarts a proxy whose StatefulSet is late.
const revision = "deployment.kubernetes.io/revision"

func (f facts) add(path string, value any) {
	last := path[strings.LastIndexByte(path, '.')+1:]
	if skipped, ok := defaults[last]; ok && (skipped == "" || skipped == fmt.Sprint(value)) || strings.HasSuffix(path, revision) || strings.HasSuffix(path, v1beta1.AnnotationRestartedAt) {
		return
	}
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for key, item := range v {
			f.add(path+"."+key, item)
		}
	case []any:
		f.list(path, v)
	default:
		f.text(path, fmt.Sprint(v))
	}
}

// text adds a value, and what is in it if it is JSON. A checksum follows from what else is compared:
// that there is one is the fact.
func (f facts) text(path, text string) {
	var inner any
	patch, isPatch := strings.CutPrefix(text, "--k8s-pod-patch=")
	switch {
	case strings.HasSuffix(path, "checksum"):
		f[path] = "(a checksum)"
	case isPatch && json.Unmarshal([]byte(patch), &inner) == nil, strings.HasSuffix(path, ".json") && json.Unmarshal([]byte(text), &inner) == nil:
		f.add(path, inner)
	default:
		f[path] = text
	}
}

// list adds items by what tells them apart, whatever their order. Of middlewares the order counts.
func (f facts) list(path string, items []any) {
	var order []string
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			if text := fmt.Sprint(item); strings.HasPrefix(text, "--k8s-pod-patch=") {
				f.text(path+"[--k8s-pod-patch]", text)
			} else {
				order = append(order, text)
			}
			continue
		}
		if verbs, ok := object["verbs"]; ok {
			names := any("all")
			if object["resourceNames"] != nil {
				names = object["resourceNames"]
			}
			f[fmt.Sprintf("%s%v%v", path, object["apiGroups"], object["resources"])] += fmt.Sprintf("%v of %v ", verbs, names)
			continue
		}
		key := fmt.Sprint(i)
		for _, by := range []string{"type", "mountPath", "name"} {
			if text, ok := object[by].(string); ok {
				key = text
				break
			}
		}
		if strings.HasSuffix(path, "middleware_configs") {
			order = append(order, key)
		}
		f.add(path+"["+key+"]", item)
	}
	if len(order) > 0 {
		f[path] = strings.Join(order, " ")
	}
}

// fact is one of one or more servers.
type fact struct{ path, value string }

// tally counts facts of theirs, and those that are ours as well.
type tally struct{ all, same int }

func (c *tally) add(same bool) {
	c.all++
	if same {
		c.same++
	}
}

func (c tally) percent() float64 { return 100 * float64(c.same) / float64(max(c.all, 1)) }

func (c tally) String() string {
	return fmt.Sprintf("%d facts, %d equal: %.1f %%", c.all, c.same, c.percent())
}

// comparison is what came of all servers.
type comparison struct {
	bytes.Buffer
	// both leaves out the servers that ours alone refuses, which are in refuses.
	all, both tally
	refuses   []string
	// once are the facts of both, by how many servers have them.
	once map[fact]*tally
	// differing and extra are the servers where a fact of theirs is not ours, and the other way round.
	differing, extra map[fact][]string
	// open are paths that differ, and that no departure explains.
	open map[string]bool
}

// compare reports how many of their facts are ours as well: by server, and in all.
func compare(t *testing.T, theirs, ours map[string]facts) {
	t.Helper()
	c := &comparison{once: map[fact]*tally{}, differing: map[fact][]string{}, extra: map[fact][]string{}, open: map[string]bool{}}
	departures := departures(t)
	for _, server := range slices.Sorted(maps.Keys(theirs)) {
		c.server(strings.TrimPrefix(server, "s-"), theirs[server], ours[server], departures)
	}
	var shares float64
	for _, share := range c.once {
		shares += share.percent()
	}
	fmt.Fprintf(c, "%d servers: %s\n", len(theirs), c.all)
	fmt.Fprintf(c, "%d without those that ours alone refuses (%s): %s; a fact that several have counted once: %d, %.1f %%\n",
		len(theirs)-len(c.refuses), strings.Join(c.refuses, ", "), c.both, len(c.once), shares/float64(max(len(c.once), 1)))
	t.Log("\n" + c.String())
	c.list("path | theirs | ours | servers", c.differing)
	c.list("only ours", c.extra)
	if file := os.Getenv(envReport); file != "" {
		if err := os.WriteFile(file, c.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(refused, c.refuses) {
		t.Errorf("ours alone refuses %v, want %v", c.refuses, refused)
	}
	if c.all.percent() < least {
		t.Errorf("%s, want %d %%", c.all, least)
	}
	for _, path := range slices.Sorted(maps.Keys(c.open)) {
		t.Errorf("%s differs: make it equal, or give it a row in %s and in testdata/departures.yaml", path, page)
	}
}

func (c *comparison) server(called string, theirs, ours facts, departures []*regexp.Regexp) {
	one := tally{}
	refusal := theirs[phasePath] != "Failed" && ours[phasePath] == "Failed"
	for path, value := range theirs {
		got, there := ours[path]
		same := there && got == value
		one.add(same)
		if !same {
			f := fact{path, value + " | " + cmp.Or(got, "(nothing)")}
			c.differing[f] = append(c.differing[f], called)
		}
		if !refusal {
			c.addOnce(fact{path, value}, same)
		}
		if !same && !slices.ContainsFunc(departures, func(d *regexp.Regexp) bool { return d.MatchString(called + " " + path) }) {
			c.open[path] = true
		}
	}
	more := 0
	for path, value := range ours {
		if _, there := theirs[path]; !there {
			more++
			c.extra[fact{path, value}] = append(c.extra[fact{path, value}], called)
		}
	}
	c.all = tally{c.all.all + one.all, c.all.same + one.same}
	if refusal {
		c.refuses = append(c.refuses, called)
	} else {
		c.both = tally{c.both.all + one.all, c.both.same + one.same}
	}
	fmt.Fprintf(c, "%-20s %s (%d only ours)\n", called, one, more)
}

func (c *comparison) addOnce(f fact, same bool) {
	if c.once[f] == nil {
		c.once[f] = &tally{}
	}
	c.once[f].add(same)
}

func (c *comparison) list(title string, found map[fact][]string) {
	fmt.Fprintf(c, "\n%s:\n", title)
	for _, f := range slices.SortedFunc(maps.Keys(found), func(a, b fact) int {
		return cmp.Or(cmp.Compare(len(found[b]), len(found[a])), cmp.Compare(a.path, b.path), cmp.Compare(a.value, b.value))
	}) {
		fmt.Fprintf(c, "%3d %s | %s | %s\n", len(found[f]), f.path, f.value, strings.Join(found[f], " "))
	}
}

// page has a row for each departure.
const page = "docs/reference/toolhive-fields.md"

// departures are the patterns of testdata/departures.yaml, each of which names a row of the page. They match the name of a
// server and a path.
func departures(t *testing.T) (patterns []*regexp.Regexp) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "departures.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	if err := yaml.UnmarshalStrict(text, &table); err != nil {
		t.Fatal(err)
	}
	for pattern, row := range table {
		if !regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta(row) + `.*\|.*departure`).Match(rows) {
			t.Errorf("%s has no departure %q", page, row)
		}
		patterns = append(patterns, regexp.MustCompile(pattern))
	}
	return patterns
}
