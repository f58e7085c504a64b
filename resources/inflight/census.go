package inflight

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

const (
	// censusWindow is how long writes are counted at least.
	censusWindow = time.Second
	// aloneBelow is how many writes others make in a second on a cluster where nobody waits for the API server: leases of
	// kube-controller-manager, kube-scheduler and of some nodes, and the status of the migration, are up to six.
	aloneBelow = 10
)

// census counts the writes of others by etcd's revisions, of which each write in a cluster takes the next one: those
// between two writes of ours that are not ours.
type census struct {
	began          time.Time
	lasted         time.Duration // of the last window
	from, to, most uint64        // the first and the last revision of the last window, and the latest one
	ours, later    int           // our writes in the last window, and since
}

// wrote notes a write of ours, and tells whether others write, once for each window: an answer of the last window may
// come in the present one.
func (c *census) wrote(revision uint64, now time.Time) (others, known bool) {
	if now.Sub(c.began) > 10*censusWindow { // this is another copy
		*c = census{began: now, to: revision, most: revision}
		return true, true
	}
	if c.most = max(c.most, revision); revision > c.to {
		c.later++
	} else if revision > c.from {
		c.ours++
	}
	took := now.Sub(c.began)
	if took < censusWindow {
		return false, false
	}
	if known = c.from > 0; known {
		others = float64(c.to-c.from)-float64(c.ours) > aloneBelow*c.lasted.Seconds()
	}
	*c = census{began: now, lasted: took, from: c.to, to: c.most, most: c.most, ours: c.later}
	return others, known
}

// revisionReader finds the revision in an object that is read through it: the first one, so long as it is not cut in two.
type revisionReader struct {
	io.ReadCloser
	found func(revision uint64)
}

var revisionField = []byte(`"resourceVersion":"`)

func (r *revisionReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if _, after, has := bytes.Cut(p[:n], revisionField); has && r.found != nil {
		digits, _, whole := bytes.Cut(after, []byte(`"`))
		if revision, wrong := strconv.ParseUint(string(digits), 10, 64); whole && wrong == nil {
			r.found(revision)
			r.found = nil
		}
	}
	return n, err
}
