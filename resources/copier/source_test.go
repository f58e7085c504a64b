package copier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// What the copies add is known from a page of each kind.
func TestBytes(t *testing.T) {
	w := newWorld(t)
	w.v1("GlobalNetworkSet", "metadata: {name: small}\nspec: {nets: [192.0.2.0/24]}")
	small, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	w.v1("GlobalNetworkSet", "metadata: {name: large, annotations: {filler: "+strings.Repeat("x", 100000)+"}}\nspec: {nets: [192.0.2.0/24]}")
	both, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	if small < 500 || small > 3000 || both < 250000 || both > 260000 {
		t.Errorf("%d and %d bytes", small, both)
	}
}

// Of each v1 object it is known whether it was written since a verification, whatever has gone meanwhile.
func TestWhatWasWrittenSinceAVerification(t *testing.T) {
	w := newWorld(t)
	kind := kindOf(t, "NetworkSet")
	made := map[string]*Meta{}
	for _, name := range []string{"kept", "gone", "edited"} {
		obj := w.v1("NetworkSet", "metadata: {namespace: shop, name: "+name+", creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: {nets: [10.0.0.0/8]}")
		made[name] = metadataOf(obj)
	}
	c := w.copier(interceptor.Funcs{})
	since := &migrationv1.Verified{At: metav1.NewTime(time.Now().Add(time.Hour)), Revision: int64(parseVersion(made["edited"].ResourceVersion))}
	w.must(w.client.Delete(t.Context(), made["gone"]))
	w.patch(made["edited"], `{"metadata":{"labels":{"a":"b"}}}`)
	w.v1("NetworkSet", "metadata: {namespace: shop, name: late, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: {nets: [10.0.0.0/8]}")
	for why, tc := range map[string]struct {
		since *migrationv1.Verified
		want  []string
	}{
		"some were written":             {since: since, want: []string{"shop/edited", "shop/late"}},
		"nothing is known":              {since: &migrationv1.Verified{At: since.At}},
		"all were made anew, elsewhere": {since: &migrationv1.Verified{At: metav1.NewTime(time.Unix(-1, 0)), Revision: 1 << 40}, want: []string{"shop/edited", "shop/kept", "shop/late"}},
	} {
		held, err := c.V1Digests(t.Context(), tc.since)
		w.must(err)
		if diff := cmp.Diff(fmt.Sprint(tc.want), fmt.Sprint(held[kind.Name()].Since)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", why, diff)
		}
	}
}
