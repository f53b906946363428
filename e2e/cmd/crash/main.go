// Command crash is the crash sweep: it stops the provisioner, the remote agent or a command
// of the plugin before and after each API call that it makes, refuses the call, loses its answer or has a second
// replica take over, and checks that each claim ends as its user asked. It prints
// a table flow × fault (with --moves, phase × fault) of the cases that were tried and survived, and ends with
// status 1 if any did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/crash"
)

func main() {
	flows := flag.String("flows", "", "the flows to sweep, separated by commas; empty: all")
	faults := flag.String("faults", "", "the faults to sweep, separated by commas; empty: all")
	sample := flag.Bool("sample", false, "sweep a fixed choice of the calls, with each flow and each fault")
	most := flag.Int("most", 0, "sweep at most so many cases of each fault and flow, chosen evenly; 0: all")
	atOnce := flag.Int("at-once", 0, "how many cases run at once; 0: as many as suit two idle cores")
	one := flag.String("case", "", "run just this case, given as flow,fault,call, as a sweep prints it; of a move also as flow,fault,reads "+
		"or flow,fault,writes")
	moves := flag.Bool("moves", false, "sweep the flows that move volumes, with movers that really run, and no others")
	keep := flag.Bool("keep-logs", false, "keep the logs of all programs")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	o := crash.Options{Flows: list(*flows), Sample: *sample, Most: *most, AtOnce: *atOnce}
	for _, fault := range list(*faults) {
		o.Faults = append(o.Faults, crash.Fault(fault))
	}
	command.Main(func(ctx context.Context) error { return run(ctx, o, *one, *moves, *keep) })
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func run(ctx context.Context, o crash.Options, one string, moves, keep bool) error {
	all := crash.Faults()
	if moves {
		all = crash.MoveFaults()
	}
	for _, fault := range o.Faults {
		if !slices.Contains(all, fault) {
			return fmt.Errorf("there is no fault %q: choose among %v", fault, all)
		}
	}
	begun := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4ds %s\n", int(time.Since(begun).Seconds()), fmt.Sprintf(format, args...))
	}
	parts, err := crash.Split(o, one, moves)
	if err != nil {
		return err
	}
	var outcomes []crash.Outcome
	for _, part := range parts {
		say("starting two control planes")
		world, started := part.Start(ctx, say)
		if err = started; err != nil {
			break
		}
		if keep {
			world.Bed.Home.KeepLogs()
		}
		some, swept := sweep(ctx, world, part.Options, one)
		outcomes = append(outcomes, some...)
		if len(crash.Failed(some)) > 0 {
			world.Bed.Home.KeepLogs()
		}
		world.Stop()
		if err = swept; err != nil {
			break
		}
	}
	if err != nil {
		fmt.Println("The sweep did not get to its end. So far:")
	}
	if err := errors.Join(err, crash.Print(os.Stdout, outcomes)); err != nil {
		return err
	}
	failed := crash.Failed(outcomes)
	if len(failed) == 0 {
		return nil
	}
	fmt.Println("\nThese did not survive:")
	told := map[string]bool{}
	for _, o := range failed {
		if !told[o.Namespace] {
			fmt.Println(o)
		}
		told[o.Namespace] = true
	}
	return fmt.Errorf("%d cases did not survive", len(failed))
}

func sweep(ctx context.Context, world *crash.World, o crash.Options, one string) ([]crash.Outcome, error) {
	if one == "" {
		return world.Sweep(ctx, o)
	}
	parts := strings.SplitN(one, ",", 3)
	if len(parts) != 3 {
		return nil, errors.New("--case must be flow,fault,call")
	}
	return world.Run(ctx, parts[0], crash.Fault(parts[1]), parts[2])
}
