package inflight

import "math"

const (
	// firstLimit is how many requests are tried first.
	firstLimit = 4
	// leastLimit is how many are in flight before it is asked what more would bring. Fewer are dearer, in CPU of
	// kube-apiserver, etcd and ours together: 6.7 ms an object with 4, 6.1 with 16, 5.8 with 32 (copying 5,000 under
	// the lock on two cores), since all of them send and store several at once where there are several. No window
	// shows so little, and while a large API server collects garbage, for ten seconds, windows show nothing: copying
	// 100,000 ahead the limit was 1 to 4 then, and a third of the CPU idle. What others of the API server wait
	// meanwhile is in docs/scale.md.
	leastLimit = 32
	// rests is how many windows pass between two tries of another limit.
	rests = 8
	// gain: twice as many requests in flight must bring so many times, as a power of two, as many answers.
	gain = 0.25
)

// climb looks for the limit beyond which more requests in flight bring no more answers, only longer waits.
// It tries a higher one, keeps it if it is worth it, and tries a lower one in the same way. So it finds down
// as well, and needs no idea of how long a request should take, which depends on the kind of the object.
type climb struct {
	most int
	// bears is what was left to the API server when it last had too much.
	bears int
	// limit is the best one known, and rate its answers a second; 0: nothing is known.
	limit int
	rate  float64
	down  bool
	rest  int
}

// next is the limit to try after a window with that many answers a second at some limit. Up to leastLimit, or to what
// the server bears, it doubles whatever that brings.
func (c *climb) next(tried int, rate float64) int {
	least := min(leastLimit, c.bears)
	if tried < least {
		c.limit, c.rate = min(least, 2*tried), 0
		return c.limit
	}
	switch {
	case c.rate == 0:
		c.limit, c.rate, c.down = tried, rate, false
	case tried == c.limit:
		c.rate = (c.rate + rate) / 2
		if c.rest > 0 {
			c.rest--
			return c.limit
		}
	case rate >= c.rate*math.Pow(float64(tried)/float64(c.limit), gain):
		c.limit, c.rate = tried, rate // and further in this direction
	default:
		c.down, c.rest = !c.down, rests
		return c.limit
	}
	return c.step(least)
}

// step is half as many again, or a third less.
func (c *climb) step(least int) int {
	if !c.down && c.limit >= c.most || c.down && c.limit <= least {
		c.down = !c.down
	}
	if c.down {
		return max(least, c.limit*2/3)
	}
	return min(c.most, c.limit+max(1, c.limit/2))
}

// halve is the limit after the API server has had too much. What was known of it is void.
func (c *climb) halve(limit int) int {
	c.limit, c.rate = max(1, limit/2), 0
	c.bears = c.limit
	return c.limit
}
