package fsm

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// maxEarlier is how many tokens that are no times are remembered beside the last one: a person
// does not come back to one of so long ago, and the status has room for them. Times need no such bound:
// the latest of them stands for all.
const maxEarlier = 32

// acted tells whether a token was acted on, or is a time that is not later than one that was.
func acted(q v1alpha1.RequestStatus, token string) bool {
	if token == q.Token {
		return true
	}
	at, isTime := instant(token)
	return slices.ContainsFunc(marks(q), func(mark string) bool {
		if !isTime {
			return mark == markOf(token)
		}
		before, timed := instant(mark)
		return timed && !at.After(before)
	})
}

// marks stand for the tokens that were acted on, the newest first.
func marks(q v1alpha1.RequestStatus) []string {
	if q.Token == "" {
		return nil
	}
	return append([]string{markOf(q.Token)}, strings.Fields(q.Earlier)...)
}

// markOf is a short text for a token: itself if it is a time, else a digest.
func markOf(token string) string {
	if at, isTime := instant(token); isTime {
		return at.UTC().Format(time.RFC3339Nano)
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

func instant(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// after is what is stored once a token is acted on that comes after those marks.
func after(name, token string, marks []string) v1alpha1.RequestStatus {
	q := v1alpha1.RequestStatus{Name: name, Token: token}
	latest, _ := instant(token)
	var times, others []string
	for _, mark := range marks {
		at, isTime := instant(mark)
		switch {
		case isTime && at.After(latest):
			latest, times = at, []string{mark}
		case !isTime && mark != markOf(token) && !slices.Contains(others, mark) && len(others) < maxEarlier:
			others = append(others, mark)
		}
	}
	q.Earlier = strings.Join(append(times, others...), " ")
	return q
}

// actedOn is what is stored of a request; without a token where nothing is.
func (s *state) actedOn(name string) v1alpha1.RequestStatus {
	for _, q := range s.st.Requests {
		if q.Name == name {
			return q
		}
	}
	return v1alpha1.RequestStatus{Name: name}
}
