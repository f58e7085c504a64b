package runner

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Metrics of all machines: counters and histograms of what this process did, and
// gauges of what the statuses say. The gauges come from the stored status, which
// every pass reads, so that a restarted manager shows them at once.
type Metrics struct {
	transitions *prometheus.CounterVec
	phases      *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	steps       *prometheus.HistogramVec
	retries     *prometheus.CounterVec
	errors      *prometheus.CounterVec
	objects     *objects
	leftovers   *leftovers
}

// NewMetrics makes the metrics and registers them; call it once per registry.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_transitions_total",
			Help: "Transitions that were stored."}, []string{"machine", "from", "to", "reason"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "phasegate_phase_duration_seconds",
			Help: "Duration of phases that have ended.", Buckets: prometheus.ExponentialBuckets(0.1, 4, 12)}, []string{"machine", "phase"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_machine_requests_total",
			Help: "One-shot requests (retry, restart, approve) that were acted on."}, []string{"machine", "request"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "phasegate_step_duration_seconds",
			Help: "Duration of actions.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 12)}, []string{"machine", "action"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_retries_total",
			Help: "Failed actions that are retried or caught."}, []string{"machine", "action"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_errors_total",
			Help: "Errors of actions by class."}, []string{"machine", "action", "class"}),
		objects: newObjects(), leftovers: newLeftovers(),
	}
	reg.MustRegister(m.leftovers.gauge, m.transitions, m.phases, m.requests, m.steps, m.retries, m.errors, m.objects)
	return m
}

// ObjectsMost is how many objects of a machine have series of their own by default: some 17 each.
const ObjectsMost = 500

// CountObjects leaves out the series about single objects, but for those in trouble, and counts the objects instead,
// however few they are. Call it before anything is served.
func (m *Metrics) CountObjects() { m.objects.most = -1 }

// Stored takes over what the API server has of an object: call it whenever a
// status was read or written. The object may change afterwards.
func (m *Metrics) Stored(machine *fsm.Machine, obj MachineObject) {
	for _, request := range m.objects.put(machine, obj) {
		m.requests.WithLabelValues(machine.Name(), request).Inc()
	}
}

// Gone drops the gauges of an object that does not exist any more, or is not driven
// any more. It may be one that was never seen.
func (m *Metrics) Gone(machine *fsm.Machine, key types.NamespacedName) {
	m.objects.forget(machine.Name(), key)
}

// Took counts a transition; call it once it is stored.
func (m *Metrics) Took(machine *fsm.Machine, t *v1alpha1.Transition) {
	m.transitions.WithLabelValues(machine.Name(), t.From, t.To, t.Reason).Inc()
	if t.From != "" {
		m.phases.WithLabelValues(machine.Name(), t.From).Observe(t.Took.Seconds())
	}
}

// Did counts one call of an action.
func (m *Metrics) Did(machine *fsm.Machine, action string, took time.Duration, o fsm.Result) {
	m.steps.WithLabelValues(machine.Name(), action).Observe(took.Seconds())
	if o.Err == nil || o.Class == "" {
		return
	}
	m.retries.WithLabelValues(machine.Name(), action).Inc()
	m.errors.WithLabelValues(machine.Name(), action, string(o.Class)).Inc()
}

// leftovers are the states whose object is gone while they hold something.
type leftovers struct {
	gauge *prometheus.GaugeVec
	known sync.Map // names of states
}

func newLeftovers() *leftovers {
	return &leftovers{gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phasegate_states_without_object",
		Help: "Objects that are gone while their machine state holds something, which is being released: kubectl get machinestates."}, []string{"machine"})}
}

// add is false for a state that was added before.
func (l *leftovers) add(machine, state string) bool {
	_, known := l.known.LoadOrStore(state, true)
	if !known {
		l.gauge.WithLabelValues(machine).Inc()
	}
	return !known
}

func (l *leftovers) remove(machine, state string) {
	if _, known := l.known.LoadAndDelete(state); known {
		l.gauge.WithLabelValues(machine).Dec()
	}
}

// ofObject are the labels of every series about one object. The namespace is not
// called so: a scrape gives its own namespace that label.
var ofObject = []string{"machine", "kind", "object_namespace", "object"}

func objectDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, slices.Concat(ofObject, more), nil)
}

var (
	phaseDesc = objectDesc("phasegate_phase", "1 for the phase of an object, 0 for the machine's other phases.", "phase")
	infoDesc  = objectDesc("phasegate_object_info",
		"1 for each object, with the machine revision that last drove it. If phasegate_machine_info has another one, the object has not taken over an edit yet.", "revision")
	enteredDesc  = objectDesc("phasegate_phase_entered_timestamp_seconds", "When the object entered its phase.")
	deadlineDesc = objectDesc("phasegate_phase_deadline_timestamp_seconds", "When the timeout of the phase fires; absent where it has none.")
	readyDesc    = objectDesc("phasegate_ready", "1 if the object's condition Ready is True, else 0.")
	stalledDesc  = objectDesc("phasegate_stalled", "1 if the object's condition Stalled is True, else 0: a person must act.")
	blockedDesc  = objectDesc("phasegate_blocked_exits", "Closed exits of the phase, or a waiting step: status.machine.blocked.")
	heldDesc     = objectDesc("phasegate_held_effects", "Effects to be released: status.machine.held.")
	attemptsDesc = objectDesc("phasegate_step_attempts", "Errors in a row of the object's current step.")

	countDesc = prometheus.NewDesc("phasegate_objects",
		"Of a machine with more than 500 objects, or with --object-metrics=false: objects by phase and by their conditions Ready and Stalled. Series about single objects are left out then, but for those that are stalled or whose step fails.",
		[]string{"machine", "kind", "phase", "ready", "stalled"}, nil)
)

// objects is a collector of what the statuses say. A gauge that were set at each
// event could be left behind; these are made from the statuses at each scrape.
type objects struct {
	// most is how many objects of a machine are shown; more are counted, and those in trouble shown.
	most int

	mu    sync.Mutex
	known map[objectKey]snapshot
	// each is how many of known are of a machine.
	each map[string]int
}

type objectKey struct {
	machine string
	types.NamespacedName
}

// snapshot is what is shown of a status.
type snapshot struct {
	machine  *fsm.Machine
	uid      types.UID
	phase    string
	revision string
	entered  *metav1.MicroTime
	deadline *metav1.MicroTime
	requests []v1alpha1.RequestStatus

	ready, stalled          bool
	blocked, held, attempts int
}

func newObjects() *objects {
	return &objects{most: ObjectsMost, known: map[objectKey]snapshot{}, each: map[string]int{}}
}

// put answers the requests that were acted on since the object was put last.
func (o *objects) put(machine *fsm.Machine, obj MachineObject) (acted []string) {
	st, conditions := obj.MachineStatus(), *obj.Conditions()
	next := snapshot{
		machine: machine, uid: obj.GetUID(), phase: st.Phase, revision: st.Revision,
		entered: st.EnteredAt.DeepCopy(), deadline: st.Deadline.DeepCopy(), requests: slices.Clone(st.Requests),
		ready:   meta.IsStatusConditionTrue(conditions, fsm.ConditionReady),
		stalled: meta.IsStatusConditionTrue(conditions, fsm.ConditionStalled),
		blocked: len(st.Blocked), held: len(st.Held), attempts: int(st.Attempts),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := objectKey{machine.Name(), client.ObjectKeyFromObject(obj)}
	last, seen := o.known[key]
	if !seen {
		o.each[key.machine]++
	}
	if seen && last.uid == next.uid {
		for _, r := range next.requests {
			if !slices.Contains(last.requests, r) {
				acted = append(acted, r.Name)
			}
		}
	}
	o.known[key] = next
	return acted
}

func (o *objects) forget(machine string, key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, seen := o.known[objectKey{machine, key}]; seen {
		delete(o.known, objectKey{machine, key})
		o.each[machine]--
	}
}

// of lists the objects of a machine.
func (o *objects) of(machine string) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keys []types.NamespacedName
	for key := range o.known {
		if key.machine == machine {
			keys = append(keys, key.NamespacedName)
		}
	}
	return keys
}

// Describe is part of prometheus.Collector.
func (o *objects) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{phaseDesc, infoDesc, enteredDesc, deadlineDesc, readyDesc, stalledDesc, blockedDesc, heldDesc, attemptsDesc, countDesc} {
		to <- desc
	}
}

// Collect is part of prometheus.Collector.
func (o *objects) Collect(to chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count(to)
	for key, s := range o.known {
		labels := []string{key.machine, s.machine.For().Kind, key.Namespace, key.Name}
		show := func(desc *prometheus.Desc, value float64, more ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, slices.Concat(labels, more)...)
		}
		if o.counted(key.machine) {
			s.showTrouble(show)
		} else {
			s.show(show)
		}
	}
}

// counted tells whether the objects of a machine are counted. It needs the lock.
func (o *objects) counted(machine string) bool { return o.each[machine] > o.most }

// count needs the lock.
func (o *objects) count(to chan<- prometheus.Metric) {
	type group struct {
		machine, kind, phase string
		ready, stalled       bool
	}
	counts := map[group]int{}
	for key, s := range o.known {
		if !o.counted(key.machine) {
			continue
		}
		counts[group{key.machine, s.machine.For().Kind, s.phase, s.ready, s.stalled}]++
	}
	for g, n := range counts {
		to <- prometheus.MustNewConstMetric(countDesc, prometheus.GaugeValue, float64(n), g.machine, g.kind, g.phase, strconv.FormatBool(g.ready), strconv.FormatBool(g.stalled))
	}
}

// showTrouble shows what alerts are about.
func (s *snapshot) showTrouble(show func(desc *prometheus.Desc, value float64, more ...string)) {
	if s.stalled {
		show(stalledDesc, 1)
	}
	if s.attempts > 0 {
		show(attemptsDesc, float64(s.attempts))
	}
}

func (s *snapshot) show(show func(desc *prometheus.Desc, value float64, more ...string)) {
	phases := s.machine.Phases()
	if s.phase != "" && !slices.Contains(phases, s.phase) {
		phases = append(phases, s.phase) // of a file that is gone: the object stands there all the same
	}
	for _, name := range phases {
		show(phaseDesc, truth(name == s.phase), name)
	}
	show(infoDesc, 1, s.revision)
	show(readyDesc, truth(s.ready))
	show(stalledDesc, truth(s.stalled))
	show(blockedDesc, float64(s.blocked))
	show(heldDesc, float64(s.held))
	show(attemptsDesc, float64(s.attempts))
	if s.entered != nil {
		show(enteredDesc, seconds(s.entered.Time))
	}
	if s.deadline != nil {
		show(deadlineDesc, seconds(s.deadline.Time))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
