package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/dynamic"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What must not be exceeded.
const (
	gapLimit      = 2 * time.Second
	describeLimit = 60
)

// How long is waited, many times what it takes on an idle machine.
const (
	copyLimit    = 3 * time.Minute
	rolloutLimit = 2 * time.Minute
	cleanUpLimit = 2 * time.Minute
	messageLimit = 30 * time.Second
	stopLimit    = 10 * time.Second
	// startAgain is how long a practice cluster is without its manager after that has ended.
	startAgain = 2 * time.Second
)

// logTail is how much of the manager's log is shown after a failure.
const logTail = 40

// story is the notebook of one demo; each step leaves in it what later ones need.
type story struct {
	options
	out *terminal

	scene   *setup.Setup
	manager *harness.Process
	prober  *prober
	shown   int // transitions printed so far

	inV3    equality.Side // what v3 holds after the migration
	summary summary
}

func newStory(o options, out *terminal) *story {
	return &story{options: o, out: out}
}

// step is one chapter.
type step struct {
	title string
	do    func(context.Context) error
}

// whole is the story from nothing to the end.
func (s *story) whole() []step {
	return []step{
		{"A Calico cluster, from nothing", s.build},
		{"The manager starts; a client reads v3 every " + probeEvery.String(), s.start},
		{"Migrate: kubectl would apply DatastoreMigration " + setup.MigrationName, s.migrate},
		{"A v3 object is in the way", s.meetConflict},
		{"Resolve it, and the migration goes on by itself", s.resume},
		{"Compare both sides, object by object", s.compare},
		{"Switch Calico's components to " + fixture.APIGroupV3, s.rollOut},
		{"What kubectl describe tells", s.describe},
		{"Delete the migration, and the v1 CRDs with it", s.cleanUp},
		{"What it was like", s.sumUp},
	}
}

// opening is its beginning: what happens then is up to whoever reads a tutorial.
func (s *story) opening() []step {
	return []step{
		{"A Calico cluster, from nothing", s.build},
		{"The manager starts", s.startManager},
		{"It is yours, until Ctrl-C", s.handOver},
	}
}

// run tells a story and cleans up behind it, whatever happens.
func (s *story) run(ctx context.Context, steps []step) (err error) {
	defer func() { err = errors.Join(err, s.close(err)) }()
	for i, step := range steps {
		s.out.heading(i+1, len(steps), step.title)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in step %d (%s)", i+1, step.title)
			}
			return fmt.Errorf("step %d (%s): %w", i+1, step.title, err)
		}
	}
	return nil
}

func (s *story) sumUp(context.Context) error {
	s.summary.took = time.Since(s.out.began)
	s.summary.print(s.out)
	return nil
}

// handOver waits for Ctrl-C. A manager that ends, since somebody kills it or it is given what it cannot run with, is started
// again, as a cluster would do it.
func (s *story) handOver(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	s.out.line("In another terminal, in %s:", root)
	s.out.line("")
	s.out.line("  export KUBECONFIG=%s PATH=%s/bin:%s/bin/tools:$PATH", s.scene.Kubeconfig, root, root)
	s.out.line("")
	s.out.line("Then follow docs/tutorials/migrate-a-test-cluster.md, or docs/extend/new-machine.md with a machine of your own.")
	s.out.line("The manager is process %d, with its log in %s. It is started again whenever it ends: kill it at any time.", s.manager.PID(), s.manager.Log)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.manager.Ended():
		}
		s.out.line("%v", s.manager.Alive())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(startAgain):
		}
		if err := s.startManager(ctx); err != nil {
			return err
		}
		s.out.line("the manager was started again, as process %d", s.manager.PID())
	}
}

// close ends everything, or says how to look at it when it is to be kept.
func (s *story) close(failure error) error {
	if s.prober != nil {
		s.prober.stop()
	}
	if s.manager != nil {
		if failure != nil {
			s.out.line("")
			s.out.line("the end of the manager's log:")
			s.out.block(s.manager.Tail(logTail))
		}
		if err := s.manager.Stop(stopLimit); err != nil && failure == nil {
			return fmt.Errorf("the manager did not end well: %w", err)
		}
	}
	if s.scene == nil {
		return nil
	}
	if s.keep {
		s.showKept()
	}
	return s.scene.Close()
}

func (s *story) showKept() {
	s.out.line("")
	s.out.line("The cluster is kept. Look at it:")
	s.out.line("  KUBECONFIG=%s bin/tools/kubectl get crds", s.scene.Kubeconfig)
	s.out.line("The manager has ended, its log is in %s. Start another one:", s.scene.LogDir)
	s.out.line("  bin/manager --kubeconfig %s", s.scene.Kubeconfig)
	s.out.line("End it:")
	s.out.line("  make cluster-down CLUSTER_DIR=%s", filepath.Dir(s.scene.Kubeconfig))
}

func (s *story) build(ctx context.Context) (err error) {
	objects := fixture.Demo(s.seed, s.objects)
	s.summary.objects = len(objects)
	s.scene, err = setup.New(ctx, setup.Options{
		Cluster: harness.Options{Own: true, Keep: s.keep},
		Objects: objects,
		BeforeStandIn: func(ctx context.Context, sc *setup.Setup) error {
			s.out.line("leaving %s %s with other content in v3, as a trial may have", conflictKind, conflictName)
			return plant(ctx, sc)
		},
		Say: s.out.line,
	})
	if err != nil {
		return err
	}
	s.out.line("look at it while it runs: export KUBECONFIG=%s", s.scene.Kubeconfig)
	return nil
}

func (s *story) startManager(context.Context) (err error) {
	args := s.managerArgs
	if s.phasesDir != "" {
		s.out.line("it runs the machines of %s, too", s.phasesDir)
		args = append([]string{"--phases-dir", s.phasesDir}, args...)
	}
	s.manager, err = s.scene.StartManager(args...)
	return err
}

func (s *story) start(ctx context.Context) (err error) {
	if err := s.startManager(ctx); err != nil {
		return err
	}
	s.prober, err = startProber(ctx, s.scene.Config)
	return err
}

func (s *story) migrate(ctx context.Context) error {
	s.out.line("apiVersion: %s", migrationv1.GroupVersion)
	s.out.line("kind: DatastoreMigration")
	s.out.line("metadata: {name: %s}", setup.MigrationName)
	s.out.line("spec: {type: %s}", migrationv1.APIServerToCRDs)
	return s.scene.Migrate(ctx, setup.MigrationName)
}

func (s *story) resume(ctx context.Context) error {
	if err := s.resolveConflict(ctx); err != nil {
		return err
	}
	dm, err := s.follow(ctx, "Converged", copyLimit)
	if err != nil {
		return err
	}
	s.summary.migrating = timeIn(dm, "Migrating")
	s.summary.waited = timeIn(dm, "WaitingForConflictResolution")
	return nil
}

func (s *story) compare(ctx context.Context) error {
	reader, err := s.reader()
	if err != nil {
		return err
	}
	inV1, err := reader.V1(ctx)
	if err != nil {
		return err
	}
	if s.inV3, err = reader.V3(ctx); err != nil {
		return err
	}
	printCounts(s.out, reader.Registry.Kinds(), inV1, s.inV3)
	c := equality.Compare(inV1, s.inV3)
	printComparison(s.out, c)
	if !c.Equal() {
		return fmt.Errorf("the sides differ: %d objects missing in v3, %d too many, %d fields different",
			len(c.Missing), len(c.Extra), len(c.Different))
	}
	found, err := checkSpecial(s.inV3)
	for _, line := range found {
		s.out.line("%s", line)
	}
	s.summary.kinds = len(reader.Registry.Kinds())
	return err
}

func (s *story) reader() (equality.Reader, error) {
	client, err := dynamic.NewForConfig(s.scene.Config)
	if err != nil {
		return equality.Reader{}, fmt.Errorf("make a client for comparing: %w", err)
	}
	return equality.Reader{Client: client, Registry: s.scene.Registry}, nil
}

// rollOut also ends the reading of v3, which has been served by its CRDs alone
// for a while then.
func (s *story) rollOut(ctx context.Context) error {
	if err := fixture.SwitchComponents(ctx, s.scene.Client, setup.CalicoNamespace); err != nil {
		return err
	}
	s.out.line("%s, %s and %s now have %s=%s", fixture.NodeDaemonSet, fixture.Typha, fixture.KubeControllers,
		fixture.APIGroupEnv, fixture.APIGroupV3)
	if _, err := s.follow(ctx, "Complete", rolloutLimit); err != nil {
		return err
	}
	seen := s.prober.stop()
	s.summary.seen = seen
	s.out.line("v3 was read %d times; the longest time without an answer was %s", seen.reads, seconds(seen.gap))
	if seen.gap > gapLimit {
		return fmt.Errorf("v3 gave no answer for %s, more than %s; the last failure: %s", seconds(seen.gap), gapLimit, seen.failure)
	}
	return nil
}

func (s *story) describe(ctx context.Context) error {
	text, err := s.kubectl(ctx, "describe", "datastoremigration", setup.MigrationName)
	if err != nil {
		return err
	}
	s.out.block(text)
	s.summary.describeLines = strings.Count(text, "\n")
	s.out.line("(%d lines)", s.summary.describeLines)
	// An Event about a hiccup on the way is worth its line: it is no reason to fail.
	if allowed := describeLimit + strings.Count(text, "\n  Warning"); s.summary.describeLines > allowed {
		return fmt.Errorf("kubectl describe prints %d lines, more than %d", s.summary.describeLines, allowed)
	}
	return nil
}

// cleanUp deletes the migration and makes sure that v1 is gone and v3 is whole.
func (s *story) cleanUp(ctx context.Context) error {
	out, err := s.kubectl(ctx, "delete", "datastoremigration", setup.MigrationName, "--timeout", cleanUpLimit.String())
	if err != nil {
		return err
	}
	s.out.block(out)
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := s.scene.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list CRDs: %w", err)
	}
	left := map[string]int{}
	for i := range list.Items {
		left[list.Items[i].Spec.Group]++
	}
	if n := left[resources.V1Group]; n > 0 {
		return fmt.Errorf("%d CRDs of %s are left", n, resources.V1Group)
	}
	s.out.line("no CRD of %s is left, %d of %s are", resources.V1Group, left[resources.V3Group], resources.V3Group)
	reader, err := s.reader()
	if err != nil {
		return err
	}
	now, err := reader.V3(ctx)
	if err != nil {
		return err
	}
	if c := equality.Compare(s.inV3, now); !c.Equal() {
		printComparison(s.out, c)
		return errors.New("v3 is not what it was before the clean-up")
	}
	s.out.line("all %d objects are in v3 as before", len(now))
	return nil
}
