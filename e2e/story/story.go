package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Options say how the story is told.
type Options struct {
	// Out is where it is told; in colours if that is a terminal.
	Out io.Writer
	// Terse leaves out all but titles and checks.
	Terse bool
	// Keep leaves everything running at the end, until the context of Run ends.
	Keep bool
}

// Run tells the story and stops all that it started. It returns nil if every check
// passed. The error says in one sentence why not; if ctx ended first, it is that of
// ctx.
func Run(ctx context.Context, o Options) error {
	// The played nodes log each retry while a cluster is away.
	klog.SetLogger(logr.Discard())
	s := &story{
		options: o, console: newConsole(o.Out, o.Terse), began: time.Now(), ledger: newLedger(),
		patience: 60 * time.Second, consistently: 3 * time.Second,
	}
	steps := s.steps()
	defer s.end()
	err := s.play(ctx, steps)
	s.sum(err, len(steps))
	if o.Keep && s.fabric != nil && ctx.Err() == nil {
		s.guide()
		<-ctx.Done()
		s.console.line("\nStopping.")
		return err
	}
	return err
}

// story is the state of one telling.
type story struct {
	options          Options
	console          *console
	began            time.Time
	passes, failures int
	told             int // steps that were begun

	patience     time.Duration // the most that a check waits
	consistently time.Duration // how long something must stay as it is

	programs
	fabric   *fabric.Fabric
	contexts string // a kubeconfig with a context for each cluster
	ledger   *ledger
	homes    []*volume // the four replicas' volumes whose data is at home
	wests    []*volume // those whose data is in west
	doomed   *volume   // the one whose claim is deleted while west is away
	retains  []*volume // those of the class with reclaim policy Retain
}

type step struct {
	title, words string
	// acts is called when the step begins, so it may use what earlier steps found.
	acts func() []act
}

func (s *story) steps() []step {
	return []step{
		s.build(), s.start(), s.runPrograms(), s.peer(),
		s.spread(), s.behind(),
		s.follow(), s.wait(), s.offload(), s.scale(),
		s.remove(), s.retain(),
		s.outage(), s.takeOver(), s.comeBack(),
		s.settle(),
	}
}

func (s *story) play(ctx context.Context, steps []step) error {
	for _, step := range steps {
		s.told++
		s.console.title(s.told, step.title, step.words)
		for _, act := range step.acts() {
			if err := act(ctx); err != nil {
				return s.explain(ctx, err)
			}
		}
	}
	return nil
}

// explain shows what helps to understand why the story ended early.
func (s *story) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, errCheck) {
		_ = s.failed("what the step does", err)
	}
	if s.fabric == nil {
		return errors.New("the story could not be told")
	}
	s.fabric.Home.KeepLogs()
	s.fabric.West.KeepLogs()
	for _, in := range []where{home, west} {
		for _, args := range [][]string{
			{"get", "pods,pvc", "-A", "-o", "wide"},
			{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		} {
			s.console.line("\n    %s$ %s", in, s.typed(args))
			output, kubectlErr := s.cluster(in).Kubectl(ctx, "", args...)
			s.console.line("%s", output)
			if kubectlErr != nil {
				s.console.line("%v", kubectlErr)
			}
		}
	}
	return errors.New("the story did not go as told")
}

// sum ends the story with the table of claims and the count of checks.
func (s *story) sum(err error, steps int) {
	if err == nil || s.ledger.len() > 0 {
		s.table()
	}
	took := time.Since(s.began).Round(time.Second)
	s.console.line("")
	switch {
	case errors.Is(err, context.Canceled):
		s.console.line("Interrupted in step %d of %d.", s.told, steps)
	case err != nil:
		s.console.line("The story ended in step %d of %d; what follows was not tried.", s.told, steps)
	case !s.options.Terse:
		s.console.line("All went as told, in %v. SIMULATED were nodes, pods and the real storage classes; the control planes and Lodestone itself are real.", took)
	}
	s.console.line("%d passed, %d failed", s.passes, s.failures)
}

// end stops all that runs.
func (s *story) end() {
	s.ledger.stop()
	if s.fabric != nil {
		s.fabric.Stop()
	}
	testbed.StopAll()
}

func (s *story) guide() {
	s.console.line(`
Everything is left running until you press Ctrl-C. In another terminal:

  alias home=%s
  alias west=%s

Each is kubectl with all rights on its cluster. Worth trying:

  home get nodes -L lodestone.dev/cluster
  home get remoteclusters
  home get pv -L lodestone.dev/cluster
  home get pvc -n lodestone-storage
  west get pvc,pods -n shop -o wide
  home get events -n shop --field-selector involvedObject.kind=PersistentVolumeClaim
  home delete pod db-0 -n shop && home get pods -n shop -o wide -w

Kubeconfigs:   %s
               %s
Logs:          %s
               %s`,
		s.fabric.Home.KubectlPath(), s.fabric.West.KubectlPath(),
		s.fabric.Home.Kubeconfig(), s.fabric.West.Kubeconfig(),
		s.fabric.Home.LogDirectory(), s.fabric.West.LogDirectory())
}

// counted returns an error unless a number is what it should be.
func counted(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("there are %d %s instead of %d", have, what, want)
	}
	return nil
}
