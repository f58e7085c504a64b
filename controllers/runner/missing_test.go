package runner

import (
	"context"
	"errors"
	"testing"
	"time"
)

// One namespace whose access reviews hang keeps no other object waiting, and nobody longer than it may take.
func TestMissingWaitsForNobodyElse(t *testing.T) {
	m, now := &missing{}, time.Unix(1_000_000, 0)
	began, answer := make(chan struct{}), make(chan struct{})
	first := make(chan string)
	go func() {
		text, _ := m.remember(t.Context(), [2]string{"slow"}, now, func(context.Context) (string, error) {
			close(began)
			<-answer
			return "all", nil
		})
		first <- text
	}()
	<-began
	if text, err := m.remember(t.Context(), [2]string{"other"}, now, func(context.Context) (string, error) { return "none", nil }); text != "none" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	again := func(context.Context) (string, error) { t.Error("it is asked twice"); return "", nil }
	if _, err := m.remember(ended, [2]string{"slow"}, now, again); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: whoever asks has ended", err)
	}
	close(answer)
	if got := <-first; got != "all" {
		t.Errorf("%q", got)
	}
	if text, err := m.remember(t.Context(), [2]string{"slow"}, now.Add(askAgain/2), again); text != "all" || err != nil {
		t.Errorf("%q, %v: the answer is young", text, err)
	}
}
