package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// stopGrace is how long a program may take to end what it began.
const stopGrace = 20 * time.Second

// programs are Lodestone's programs, each in a slot of its own, as the replicas of
// Deployments are: what ends is started again under a new name.
type programs struct {
	bed    *fabric.Fabric
	paths  map[string]string // by kind
	slots  []*slot
	starts int
}

type slot struct {
	kind    string
	program *testbed.Program
}

// Kinds of programs, named as their folders are.
const (
	provisioner = "provisioner"
	extender    = "extender"
	virtualNode = "virtualnode"
	agent       = "remoteagent"
)

// build builds all programs beside the clusters' logs; they go with the clusters.
func build(ctx context.Context, bed *fabric.Fabric) (map[string]string, error) {
	paths := map[string]string{}
	for _, kind := range []string{provisioner, extender, virtualNode, agent} {
		paths[kind] = filepath.Join(filepath.Dir(bed.Home.LogDirectory()), "lodestone-"+kind)
		command := exec.CommandContext(ctx, "go", "build", "-o", paths[kind], "./"+kind)
		command.Dir = fabric.Root()
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", kind, err, output)
		}
	}
	return paths, nil
}

// startPrograms starts two provisioners and two agents, of which one leads each, an
// extender and a virtual node program.
func startPrograms(ctx context.Context, bed *fabric.Fabric) (*programs, error) {
	paths, err := build(ctx, bed)
	if err != nil {
		return nil, err
	}
	p := &programs{bed: bed, paths: paths}
	for _, kind := range []string{agent, agent, extender, provisioner, provisioner, virtualNode} {
		s := &slot{kind: kind}
		if err := p.start(ctx, s); err != nil {
			return nil, err
		}
		p.slots = append(p.slots, s)
	}
	return p, nil
}

func (p *programs) start(ctx context.Context, s *slot) (err error) {
	p.starts++
	name := fmt.Sprintf("%s-%d", s.kind, p.starts)
	switch s.kind {
	case provisioner:
		s.program, err = p.bed.RunProvisioner(ctx, name, p.paths[s.kind])
	case extender:
		s.program, err = p.bed.RunExtender(ctx, name, p.paths[s.kind])
	case virtualNode:
		s.program, err = p.bed.RunVirtualNode(ctx, name, p.paths[s.kind])
	case agent:
		s.program, err = p.bed.RunAgent(ctx, name, p.paths[s.kind])
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// mend starts again what has ended by itself, as a program that lost its lease
// does, and returns the names of those. One that panicked is an error.
func (p *programs) mend(ctx context.Context) (ended []string, err error) {
	for _, s := range p.slots {
		if s.program.Running() {
			continue
		}
		ended = append(ended, s.program.Name())
		output, err := s.program.Output()
		if err != nil {
			return ended, err
		}
		if strings.Contains(output, "\npanic: ") || strings.Contains(output, "fatal error: ") {
			return ended, fmt.Errorf("%s panicked:\n%s", s.program.Name(), output[max(0, len(output)-4000):])
		}
		if err := p.start(ctx, s); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// strike ends some programs at random, kill -9 more often than in good order, and
// starts them again a little later. It returns what it did, and to what kinds.
func (p *programs) strike(ctx context.Context, random *rand.Rand) (what string, kinds []string, err error) {
	victims := p.victims(random)
	polite, pause := random.IntN(4) == 0, time.Duration(random.Int64N(int64(time.Second)))
	var names []string
	for _, s := range victims {
		names, kinds = append(names, s.program.Name()), append(kinds, s.kind)
		if !polite {
			s.program.Kill()
		} else if err := s.program.Stop(stopGrace); err != nil {
			return "", nil, err
		}
	}
	select {
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	case <-time.After(pause):
	}
	for _, s := range victims {
		if err := p.start(ctx, s); err != nil {
			return "", nil, err
		}
	}
	how := "killed "
	if polite {
		how = "ended "
	}
	return how + strings.Join(names, " and "), kinds, nil
}

// victims are the slots to strike: the leading provisioner most often.
func (p *programs) victims(random *rand.Rand) []*slot {
	of := func(kind string) (slots []*slot) {
		for _, s := range p.slots {
			if s.kind == kind {
				slots = append(slots, s)
			}
		}
		return slots
	}
	provisioners := of(provisioner)
	leader := 0
	for i, s := range provisioners {
		if leads, err := fabric.Leads(s.program); err == nil && leads && s.program.Running() {
			leader = i
		}
	}
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		return provisioners[leader : leader+1]
	case 4:
		return provisioners[1-leader : 2-leader]
	case 5:
		return provisioners
	case 6:
		return of(agent)[random.IntN(2):][:1]
	case 7:
		return of(agent)
	case 8:
		return of(extender)
	default:
		return of(virtualNode)
	}
}
