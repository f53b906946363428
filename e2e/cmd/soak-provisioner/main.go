// Command soak-provisioner asks for many virtual claims at once, on all routes, while
// it kills the provisioners, the remote agents, the extender and the virtual node
// program at random, on two control planes on loopback, and then deletes most of them
// in the same way. It prints a summary as JSON and ends with status 1 if a claim was
// not bound, was given two volumes, lost one, or left something behind.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/soak"
)

func main() {
	var o soak.Options
	flag.Uint64Var(&o.Seed, "seed", 0, "chooses the claims, and whom to kill when; 0: one of its own, which is printed")
	flag.IntVar(&o.Claims, "claims", 2000, "how many claims are made at once")
	flag.DurationVar(&o.Every, "every", 5*time.Second, "mean time between two kills")
	flag.IntVar(&o.Kills, "kills", 50, "how many there are at most while claims are bound, and again while they are deleted")
	flag.DurationVar(&o.Patience, "patience", 15*time.Minute, "how long claims may take to be bound, and again to be deleted")
	flag.Parse()
	if o.Claims < 1 || o.Every <= 0 || o.Kills < 0 || o.Patience <= 0 {
		fmt.Fprintln(os.Stderr, "soak-provisioner: --claims, --every and --patience must be more than 0, --kills not less")
		os.Exit(2)
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	o.Say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	klog.SetLogger(logr.Discard())
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o soak.Options) error {
	o.Say("seed %d", o.Seed)
	summary, err := soak.Run(ctx, o)
	if err != nil {
		return err
	}
	line, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the summary: %w", err)
	}
	fmt.Println(string(line))
	if n := len(summary.Problems); n > 0 {
		return fmt.Errorf("%d problems with seed %d", n, o.Seed)
	}
	return nil
}
