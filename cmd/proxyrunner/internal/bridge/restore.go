package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// setLevel is the method by which a client says which logs it wants.
const setLevel = "logging/setLevel"

// restore tells a server that has just been initialised what clients have asked the one
// before for: they do not learn that it was replaced. What has changed meanwhile was told
// to nobody, so those who are subscribed are told to read again. A server that is the one
// of before is told twice, which changes nothing.
func (b *Bridge) restore(ctx context.Context, l *link) {
	level, uris := b.asked()
	if level != "" && !b.again(ctx, l, setLevel, map[string]any{"level": level}) {
		return
	}
	for _, uri := range uris {
		about := map[string]any{"uri": uri}
		if !b.again(ctx, l, "resources/subscribe", about) {
			return
		}
		params, _ := json.Marshal(about) // a text
		b.mu.Lock()
		b.announceLocked(l, &rpcRequest{Method: "notifications/resources/updated", Params: params})
		b.mu.Unlock()
	}
}

// asked are the level of logs, empty if nobody has chosen one, and the resources to which
// some client is subscribed.
func (b *Bridge) asked() (level string, uris []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]struct{}{}
	for _, s := range b.sessions {
		maps.Copy(all, s.subscriptions)
	}
	return b.level, slices.Sorted(maps.Keys(all))
}

// again is false if the server is gone.
func (b *Bridge) again(ctx context.Context, l *link, method string, about map[string]any) bool {
	params, _ := json.Marshal(about) // a text
	resp, why := b.roundTrip(ctx, l, method, params, b.o.RequestTimeout)
	switch {
	case why != nil:
		b.o.Log.Warn("the new MCP server was not told what clients had asked for", "method", method, "error", why.message)
	case resp.Error != nil:
		b.o.Log.Warn("the new MCP server refuses what clients had asked for", "method", method, "error", said(resp.Error))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !l.over
}
