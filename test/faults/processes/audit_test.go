package processes

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// credential is where the API server notes which token a request came with.
const credential = "authentication.kubernetes.io/credential-id"

// request is what is read of an audit.k8s.io/v1 Event.
type request struct {
	Verb string
	URI  string `json:"requestURI"`
	User struct{ Extra map[string][]string }
	// Object is empty where the path is not that of a resource.
	Object   struct{ Resource, Name string } `json:"objectRef"`
	Response struct{ Code int }              `json:"responseStatus"`
	Received time.Time                       `json:"requestReceivedTimestamp"`
}

func (r request) by(token string) bool {
	return slices.Contains(r.User.Extra[credential], "JTI="+token)
}

// writes is true of what changes a migration or what it is about: not of the lease, of
// Events, of questions that are asked by a create, and of dry runs.
func (r request) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) &&
		!slices.Contains([]string{"leases", "events", "selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"}, r.Object.Resource) &&
		!strings.Contains(r.URI, "dryRun=All")
}

// audited reads what was asked of the API server so far.
func (w *world) audited(t *testing.T) []request {
	t.Helper()
	file, err := os.Open(w.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	var all []request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the last line may be half written
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// tokenID is the id of the token in a kubeconfig.
func tokenID(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token in %s is none: it has %d parts", path, len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct{ JTI string }
	if err := json.Unmarshal(payload, &claims); err != nil || claims.JTI == "" {
		t.Fatalf("the token in %s has no id: %v", path, err)
	}
	return claims.JTI
}
