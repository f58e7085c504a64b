// Package bench measures what a migration costs, what another client of the API server
// notices of it, what the pure functions cost that every object passes, and what many
// MCP servers cost one manager. It knows how to measure, not what is right: that is for
// the tests of the rooms, test/e2e and test/mcpserver.
//
//	make bench                                           everything, written to RESULTS.md
//	make bench-migration BENCH_SIZES=1000 BENCH_REPEATS=1
//	BENCH_OBJECTS=500 BENCH_SERVERS=20 make bench        a short look, written to bin/bench
//
// Figures are added to those of figures.json, run by run. So a long measurement may be
// interrupted: what is there already is not measured again, unless BENCH_ANEW=1 says so.
// Figures of another machine are dropped. RESULTS.md is made of that file alone.
//
// CALICO_CRDS takes the real CRDs. BENCH_CONTENDERS takes some of: raw, shipped,
// unlimited, underlock, ahead, served, two, alone, beside, quiet, flooded, whole.
//
// # Contenders
//
// Raw creates are what a plain client can do, 32 requests at a time: the mix as a
// migration makes it, and as many IPAMHandles, which are small. Whoever migrates cannot
// be faster than the API server takes writes.
//
// The control does what Calico's own controller does, by what is known of it in public:
// lock, wait, delete the APIService, ask for the v3 object of every v1 object one after
// the other, then kind after kind ask again and create, 10 at a time. As shipped, it
// waits 10 s and makes 100 requests a second for each kind (200 at once); without client
// limits it waits 1 s. It is our own code (control_test.go), and has no fence, no
// verification and no way back, which would make it slower.
//
// Ours is bin/manager. Copying ahead is what it does by itself; copying under the lock is
// what it falls back to where the v3 CRDs may not be changed, which an admission policy
// brings about. It also runs where v3 is served from its CRDs, and with two API servers,
// which share the CPUs of one; with no other client at all; beside two others, one of which
// reads a namespace and one writes a ConfigMap, each 20 times a second, also for BENCH_IDLE
// seconds (120) before, to compare with; and with the account, rights and priority level
// of the chart on an API server with few seats, alone and while another account fills all
// seats of the others. The one without the flood prints each request of its locked window.
// And once it runs to the end of the clean-up, beside both clients for BENCH_SOAK seconds
// (600) in all, with the chart's account: what each step asks and what they notice.
//
// # Times
//
// Locked is what others see: from the first moment at which a write of v1 is refused, or
// a watch shows datastoreReady false, until v3 shows it true. A bystander writes v1 20
// times a second until then, so that there is always something left to copy. Total is
// from the creation of the DatastoreMigration until Converged.
//
// Each run has a cluster of its own, so that none begins with what another left: caches,
// compactions. It begins when kube-controller-manager's garbage collector watches all kinds,
// as on any cluster that is older than a minute, so that the collector's first look at every
// object is part of no run. etcd does not sync to disk:
// a slow disk slows raw creates most and would flatter all ratios.
package bench
