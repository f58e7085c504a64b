package copier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// V1Kind is what v1 holds of one kind.
type V1Kind struct {
	// VerifiedKind is equal to that of a Verification exactly if v1 holds what it held then.
	migrationv1.VerifiedKind
	// Since names the objects that may have been written since the Verification, where that can be known.
	Since []string
	// Excluded is how many objects the selector of the kind leaves out: they were never migrated.
	Excluded int64
	// Listed is how many objects there are, with these and with those that are being deleted.
	Listed int64
}

// V1Digests counts and digests what v1 holds now, by the v3 kind; a kind without objects, or without a
// CRD, is there with none. Objects that are being deleted count for nothing, as in a copy. It changes
// nothing, and needs nothing of v3. since is the result of the Verification, or nil.
func (s *Source) V1Digests(ctx context.Context, since *migrationv1.Verified) (map[string]V1Kind, error) {
	var mu sync.Mutex
	out := map[string]V1Kind{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range s.reg.Kinds() {
		g.Go(func() error {
			of, err := s.v1Kind(ctx, kind, since)
			mu.Lock()
			defer mu.Unlock()
			out[kind.Name()] = of
			return err
		})
	}
	return out, g.Wait()
}

func (s *Source) v1Kind(ctx context.Context, kind *resources.Kind, since *migrationv1.Verified) (V1Kind, error) {
	var of V1Kind
	var sum kindDigest
	err := s.eachObject(ctx, everyV1(kind), func(v1 *unstructured.Unstructured) error {
		of.Listed++
		if !kind.Selector().Matches(labels.Set(v1.GetLabels())) {
			of.Excluded++
			return nil
		}
		conv, err := resources.Convert(kind, v1, nil)
		if err != nil {
			return err
		}
		if conv.Terminating {
			return nil
		}
		sum.add(v1Digest(kind, v1))
		if since != nil && since.Revision > 0 && writtenSince(v1, since) {
			of.Since = append(of.Since, strings.TrimPrefix(client.ObjectKeyFromObject(v1).String(), "/"))
		}
		return nil
	})
	of.VerifiedKind = sum.of(kind)
	return of, err
}

// writtenSince is false for an object that the Verification has seen in this very state. The revision alone proves it,
// in the storage that it is of; in another one, a restored one say, the object was created later.
func writtenSince(v1 *unstructured.Unstructured, since *migrationv1.Verified) bool {
	version := contentSince(v1)
	return version == 0 || version > uint64(since.Revision) || v1.GetCreationTimestamp().After(since.At.Time)
}

// v1Digest is of all that anybody but the server has written of a v1 object. It is of the object as it
// is: neither newer CRDs nor a newer version of this program change it between the verification and the
// clean-up. A status that takes a write of its own moves on.
func v1Digest(kind *resources.Kind, v1 *unstructured.Unstructured) digest {
	content := make(map[string]any, len(v1.Object))
	for field, value := range v1.Object {
		if field != "metadata" && !(field == "status" && kind.HasStatus(nil)) {
			content[field] = value
		}
	}
	meta, _ := v1.Object["metadata"].(map[string]any)
	for _, field := range []string{"namespace", "name", "labels", "annotations", "finalizers", "ownerReferences"} {
		content["metadata."+field] = meta[field]
	}
	data, _ := json.Marshal(content) // it came out of JSON
	sum := sha256.Sum256(data)
	return digest(sum[:digestLength])
}

// digestLength bounds a digest in the status, in bytes.
const digestLength = 16

type digest [digestLength]byte

// kindDigest is the same in whatever order objects are added to it.
type kindDigest struct {
	objects int64
	xor     digest
}

func (d *kindDigest) add(object digest) {
	d.objects++
	for i := range d.xor {
		d.xor[i] ^= object[i]
	}
}

// remove takes back an add.
func (d *kindDigest) remove(object digest) {
	d.add(object)
	d.objects -= 2
}

func (d *kindDigest) of(kind *resources.Kind) migrationv1.VerifiedKind {
	return migrationv1.VerifiedKind{Kind: kind.Name(), Objects: d.objects, Digest: hex.EncodeToString(d.xor[:])}
}
