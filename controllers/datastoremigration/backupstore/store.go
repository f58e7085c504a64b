package backupstore

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// PartKey holds lines of JSON, an object each, compressed with gzip.
	PartKey = "objects.jsonl.gz"
	// IndexKey is in the last Secret only: without it, the backup is not complete.
	IndexKey = "index.json"
	// partSize is how many compressed bytes end a part. The object that goes beyond is
	// at most 1.5 MiB of JSON, and the limit of a Secret is 1 MiB.
	partSize = 256 << 10
)

// Index says what is in a backup.
type Index struct {
	Migration string    `json:"migration"`
	UID       types.UID `json:"uid"`
	Parts     []Part    `json:"parts"`
	// CRDs of v1, by name.
	CRDs []string `json:"crds"`
	// Objects is how many there are, by kind as v1 calls it.
	Objects map[string]int `json:"objects"`
}

// Empty is one of a cluster without v1.
func (i *Index) Empty() bool { return len(i.CRDs)+len(i.Objects) == 0 }

// Part is one Secret.
type Part struct {
	Secret string `json:"secret"`
	Lines  int    `json:"lines"`
	// SHA256 is of the lines, not compressed.
	SHA256 string `json:"sha256"`
}

// Store is the Secrets of one migration, numbered from 1 on. They outlive it.
type Store struct {
	Client    client.Client
	Namespace string
	Migration *migrationv1.DatastoreMigration
	// Begin is called before each write: what is there may be no whole backup from then on. Where there is
	// nothing to write it stays what it is, or two notes would take turns in a process that dies often.
	Begin func(context.Context) error
}

// Prefix is the name of the migration, as far as it is a label's value.
func (v *Store) Prefix() string {
	const longest = 63
	return strings.Trim(v.Migration.Name[:min(len(v.Migration.Name), longest)], "-.")
}

func (v *Store) name(n int) string { return fmt.Sprintf("%s-v1-backup-%d", v.Prefix(), n) }

// get is nil where there is no such Secret. One of an earlier migration with the same
// name is kept: it may be all that is left of it.
func (v *Store) get(ctx context.Context, n int) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := v.Client.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: v.name(n)}, secret)
	if apierrs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s in namespace %s: %w", v.name(n), v.Namespace, err)
	}
	if uid := secret.Labels[migrationv1.LabelBackupUID]; uid != string(v.Migration.UID) {
		return nil, fsm.Wait("the backup cannot be written, so no v1 CRD is deleted: Secret %s in namespace %s belongs to another migration (UID %q). Save and delete the Secrets with the label %s=%s",
			secret.Name, v.Namespace, uid, migrationv1.LabelBackupOf, v.Prefix())
	}
	return secret, nil
}

// Begun tells whether there is any part of a backup.
func (v *Store) Begun(ctx context.Context) (bool, error) {
	first, err := v.get(ctx, 1)
	return first != nil, err
}

// Read answers what a complete backup holds, after it has read all of it; nil if there
// is none, or not all of it.
func (v *Store) Read(ctx context.Context) (*Index, error) {
	var parts []Part
	for n := 1; ; n++ {
		secret, err := v.get(ctx, n)
		if secret == nil || err != nil {
			return nil, err
		}
		raw, last := secret.Data[IndexKey]
		if !last {
			parts = append(parts, partOf(secret))
			continue
		}
		index := &Index{}
		if json.Unmarshal(raw, index) != nil || !reflect.DeepEqual(index.Parts, parts) {
			return nil, nil
		}
		return index, nil
	}
}

// partOf reads a Secret. Of one that cannot be read the sum is that of no part.
func partOf(secret *corev1.Secret) Part {
	part := Part{Secret: secret.Name}
	sum := sha256.New()
	packed, err := gzip.NewReader(bytes.NewReader(secret.Data[PartKey]))
	if err != nil {
		return part
	}
	lines := bufio.NewReader(io.TeeReader(packed, sum))
	for {
		_, err := lines.ReadSlice('\n')
		switch {
		case err == nil:
			part.Lines++
		case errors.Is(err, io.EOF):
			part.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return part
		case !errors.Is(err, bufio.ErrBufferFull):
			return part
		}
	}
}

// put leaves a Secret that holds the same, and writes any other anew.
func (v *Store) put(ctx context.Context, n int, key string, data []byte, same func(*corev1.Secret) bool) error {
	there, err := v.get(ctx, n)
	if err != nil || there != nil && same(there) {
		return err
	}
	if err := v.Begin(ctx); err != nil {
		return err
	}
	if err := v.remove(ctx, there); err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.name(n), Labels: map[string]string{
			migrationv1.LabelBackupOf: v.Prefix(), migrationv1.LabelBackupUID: string(v.Migration.UID),
		}},
		Immutable: new(true),
		Data:      map[string][]byte{key: data},
	}
	if err := v.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("write the backup to Secret %s in namespace %s: %w", secret.Name, v.Namespace, err)
	}
	return nil
}

func (v *Store) remove(ctx context.Context, secret *corev1.Secret) error {
	if secret == nil {
		return nil
	}
	err := v.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s in namespace %s, to write it anew: %w", secret.Name, secret.Namespace, err)
	}
	return nil
}

// removeFrom removes what an earlier try has left behind the last Secret.
func (v *Store) removeFrom(ctx context.Context, n int) error {
	for ; ; n++ {
		secret, err := v.get(ctx, n)
		if secret == nil || err != nil {
			return err
		}
		if err := v.Begin(ctx); err != nil {
			return err
		}
		if err := v.remove(ctx, secret); err != nil {
			return err
		}
	}
}

// Writer splits a stream of objects into parts. The same objects make the same
// parts; it holds one part at a time.
type Writer struct {
	*Store

	Index  Index
	packed bytes.Buffer
	pack   *gzip.Writer
	sum    hash.Hash
	lines  int
}

// NewWriter begins a backup. What is in the store already, and the same, stays.
func NewWriter(v *Store) *Writer {
	w := &Writer{Store: v, sum: sha256.New(), Index: Index{
		Migration: v.Migration.Name, UID: v.Migration.UID, Objects: map[string]int{},
	}}
	w.pack = gzip.NewWriter(&w.packed)
	return w
}

// Add takes an object, less what only its server could make use of.
func (w *Writer) Add(ctx context.Context, obj *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(obj.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
	line, err := json.Marshal(obj.Object)
	if err != nil {
		return fmt.Errorf("write %s %s to the backup: %w", obj.GetKind(), obj.GetName(), err)
	}
	if _, err := io.MultiWriter(w.pack, w.sum).Write(append(line, '\n')); err != nil {
		return err
	}
	w.lines++
	if obj.GroupVersionKind().Group == apiextensionsv1.GroupName {
		w.Index.CRDs = append(w.Index.CRDs, obj.GetName())
	} else {
		w.Index.Objects[obj.GetKind()]++
	}
	if w.packed.Len() < partSize {
		return nil
	}
	return w.flush(ctx)
}

// flush ends a part.
func (w *Writer) flush(ctx context.Context) error {
	if w.lines == 0 {
		return nil
	}
	if err := w.pack.Close(); err != nil {
		return err
	}
	n := len(w.Index.Parts) + 1
	part := Part{Secret: w.name(n), Lines: w.lines, SHA256: hex.EncodeToString(w.sum.Sum(nil))}
	w.Index.Parts = append(w.Index.Parts, part)
	err := w.put(ctx, n, PartKey, bytes.Clone(w.packed.Bytes()), func(there *corev1.Secret) bool { return partOf(there) == part })
	w.packed.Reset()
	w.pack.Reset(&w.packed)
	w.sum.Reset()
	w.lines = 0
	return err
}

// Finish writes the last part and then the index.
func (w *Writer) Finish(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	raw, err := json.Marshal(w.Index)
	if err != nil {
		return err
	}
	n := len(w.Index.Parts) + 1
	if err := w.put(ctx, n, IndexKey, raw, func(there *corev1.Secret) bool { return bytes.Equal(there.Data[IndexKey], raw) }); err != nil {
		return err
	}
	return w.removeFrom(ctx, n+1)
}
