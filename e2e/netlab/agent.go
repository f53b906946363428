// This file runs the programs of the network on the nodes of a Lab, and tells them which clusters are joined.

package netlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
)

// Agent is a program that runs on a node.
type Agent struct {
	command *exec.Cmd
	log     logBuffer
	done    chan struct{}
}

type logBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Pid is the agent's process.
func (a *Agent) Pid() int { return a.command.Process.Pid }

// Log is what the agent has said.
func (a *Agent) Log() string { return a.log.String() }

// run starts a command of the program on a node.
func (l *Lab) run(n *Node, args ...string) (*Agent, error) {
	return l.launch(n.Name, n.start, []uintptr{unix.CAP_NET_ADMIN}, args...)
}

// RunInPod starts a command of the program in a pod, which has no rights beyond that.
func (l *Lab) RunInPod(p *Pod, args ...string) (*Agent, error) {
	return l.launch(p.Name, p.Start, nil, args...)
}

func (l *Lab) launch(where string, start func(*exec.Cmd) error, rights []uintptr, args ...string) (*Agent, error) {
	a := &Agent{command: exec.Command(l.program, args...), done: make(chan struct{})}
	a.command.Stdout, a.command.Stderr = &a.log, &a.log
	a.command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}, AmbientCaps: rights}
	if err := start(a.command); err != nil {
		return nil, fmt.Errorf("start lodestone-network on %s: %w", where, err)
	}
	go func() {
		_ = a.command.Wait()
		close(a.done)
	}()
	return a, nil
}

// Start starts a node's agent.
func (l *Lab) Start(n *Node) (err error) {
	n.Agent, err = l.run(n, "agent", "--node="+n.Name, "--site="+filepath.Join(n.dir, "site.json"), "--state="+n.dir,
		"--listen="+n.Address.String()+":7473", "-v=3")
	return err
}

// StartForCluster starts a node's agent, which is told by the API server of a kubeconfig what to do.
func (l *Lab) StartForCluster(n *Node, kubeconfig []byte, args ...string) (err error) {
	path, err := n.WriteFile("kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	n.Agent, err = l.run(n, append([]string{"agent", "--node=" + n.Name, "--kubeconfig=" + path, "--namespace=lodestone-network",
		"--state=" + n.dir, "-v=3"}, args...)...)
	return err
}

// WriteFile writes a file that only programs on the node read, and returns its path.
func (n *Node) WriteFile(name string, content []byte) (path string, err error) {
	path = filepath.Join(n.dir, name)
	return path, errors.Join(os.WriteFile(path, content, 0o600), os.Chown(path, user, user))
}

// Lanes is to how many gateways of other clusters packets go through from a node, with all connections.
func (n *Node) Lanes() (up int, err error) {
	_, body, err := n.get("/metrics")
	return len(allUp.FindAll(body, -1)), err
}

// Ready says whether a node's agent says that it is.
func (n *Node) Ready() (bool, error) {
	status, _, err := n.get("/readyz")
	return status == http.StatusOK, err
}

// get asks a node's agent.
func (n *Node) get(path string) (status int, body []byte, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return n.Dial(network, "", address)
		}}}
	response, err := client.Get("http://127.0.0.1:7475" + path)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

var allUp = regexp.MustCompile(`(?m)^lodestone_network_lane_connections.* 4$`)

// Kill kills a node's agent, which has no time to do anything.
func (n *Node) Kill() {
	if n.Agent != nil {
		n.Agent.Kill()
		n.Agent = nil
	}
}

// Kill kills a program, which has no time to do anything.
func (a *Agent) Kill() {
	_ = a.command.Process.Kill()
	<-a.done
}

// Remove has the program remove all from a node.
func (l *Lab) Remove(n *Node) error {
	a, err := l.run(n, "remove")
	if err != nil {
		return err
	}
	<-a.done
	if !a.command.ProcessState.Success() {
		return fmt.Errorf("remove: %s\n%s", a.command.ProcessState, a.Log())
	}
	return nil
}

// Keys has all gateways make their keys, or say which they have now, those for WireGuard only where it is to carry packets.
func (l *Lab) Keys() error {
	var gateways []*Node
	for _, n := range l.Nodes() {
		if n.Gateway {
			gateways = append(gateways, n)
		}
	}
	return l.KeysOf(gateways...)
}

// KeysOf has some gateways do what Keys has all of them do.
func (l *Lab) KeysOf(gateways ...*Node) error {
	errs := make([]error, len(gateways))
	var asking sync.WaitGroup
	for i, n := range gateways {
		asking.Go(func() { errs[i] = l.keys(n) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// Rotate has a gateway get another key, which it uses once others are told of it.
func (l *Lab) Rotate(n *Node) error { return l.keys(n, "--rotate") }

func (l *Lab) keys(n *Node, args ...string) error {
	a, err := l.run(n, append([]string{"key", "--state=" + n.dir}, args...)...)
	if err != nil {
		return err
	}
	<-a.done
	n.Keys = nil
	for line := range strings.Lines(a.Log()) {
		var key lane.Key
		if err := key.UnmarshalText([]byte(strings.TrimSpace(line))); err != nil {
			return err
		}
		n.Keys = append(n.Keys, key)
	}
	if !l.WireGuard {
		return nil
	}
	return l.wireGuardKey(n)
}

// RotateWireGuard has a gateway get another key for WireGuard.
func (l *Lab) RotateWireGuard(n *Node) error { return l.wireGuardKey(n, "--rotate") }

func (l *Lab) wireGuardKey(n *Node, args ...string) error {
	a, err := l.run(n, append([]string{"key", "--wireguard", "--state=" + n.dir}, args...)...)
	if err != nil {
		return err
	}
	<-a.done
	return n.wireGuard.UnmarshalText([]byte(strings.TrimSpace(a.Log())))
}

// Site is what the nodes of a cluster are told where it is joined: home with all others, and these with home. West's and east's gateways
// are dialed. Of each node the first pod may reach the other cluster, and be reached.
func (l *Lab) Site(c *Cluster) *site.Site {
	others := []*Cluster{l.Home}
	if c == l.Home {
		others = l.Clusters()[1:]
	}
	s := &site.Site{}
	if c.scattered {
		s.PodRanges = c.Ranges
	}
	for _, n := range c.Nodes {
		told := site.Node{Name: n.Name, Address: n.Address, Pods: n.ranges(), Gateway: n.Gateway}
		if c.scattered { // the first is the one that may
			told.Pods = n.Pods[0].alone()
		}
		s.Nodes = append(s.Nodes, told)
	}
	for _, other := range others {
		r := site.Remote{Name: other.Name, Ranges: other.Translations.Ranges(other.Ranges), Translations: c.Translations, MTU: 1500}
		for _, n := range c.Nodes {
			for _, own := range n.Pods[0].alone() {
				r.Pods = append(r.Pods, own.Addr())
			}
		}
		for _, n := range other.Nodes {
			if n.Gateway {
				g := site.Gateway{Name: n.Name, Keys: n.Keys}
				if l.WireGuard {
					r.Carrier, g.WireGuard = site.WireGuard, &lane.WireGuardEnd{Key: n.wireGuard}
				}
				if other != l.Home {
					g.Address = n.Address.String() + ":7473"
					if l.WireGuard {
						g.WireGuard.Port = 7477
					}
				}
				r.Gateways = append(r.Gateways, g)
			}
		}
		s.Remotes = append(s.Remotes, r)
	}
	if l.Transit {
		l.addTransit(c, s)
	}
	return s
}

// addTransit adds what home carries between the others.
func (l *Lab) addTransit(c *Cluster, s *site.Site) {
	for _, one := range l.Clusters()[1:] {
		for _, other := range l.Clusters()[1:] {
			switch {
			case one == other:
			case c == one:
				behind := site.Behind{Name: other.Name, Ranges: other.Translations.Ranges(other.Ranges), MTU: 1500}
				if l.Direct {
					behind.Direct = other.gateways(one == l.West)
				}
				s.Remotes[0].Behind = append(s.Remotes[0].Behind, behind)
			case c == l.Home:
				i := slices.IndexFunc(s.Remotes, func(r site.Remote) bool { return r.Name == one.Name })
				t := site.Transit{To: other.Name}
				for _, n := range one.Nodes {
					if t.Pods = append(t.Pods, n.Pods[0].Reached); n.Pods[0].Address6.IsValid() {
						t.Pods = append(t.Pods, n.Pods[0].Address6)
					}
				}
				s.Remotes[i].Transit = append(s.Remotes[i].Transit, t)
			}
		}
	}
}

// gateways are those of a cluster, as another one is told that dials it, or is dialed.
func (c *Cluster) gateways(dialed bool) (all []site.Gateway) {
	for _, n := range c.Nodes {
		if n.Gateway {
			g := site.Gateway{Name: n.Name, Keys: n.Keys}
			if dialed {
				g.Address = n.Address.String() + ":7473"
			}
			all = append(all, g)
		}
	}
	return all
}

// Tell tells all nodes of a cluster. Where nodes have no ranges, only gateways know pods.
func (l *Lab) Tell(c *Cluster, s *site.Site) error {
	for _, n := range c.Nodes {
		told := *s
		if c.scattered && !n.Gateway {
			told.Nodes = slices.Clone(s.Nodes)
			for i := range told.Nodes {
				told.Nodes[i].Pods = nil
			}
		}
		content, err := json.MarshalIndent(told, "", "  ")
		if err != nil {
			return err
		}
		// In one step: what is half written is no Site.
		path := filepath.Join(n.dir, "site.json")
		if err := os.WriteFile(path+".new", content, 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// Join has the clusters joined, and starts the agents.
func (l *Lab) Join() error { return l.joinNodes(func(*Node) bool { return true }) }

// JoinBare has the two clusters joined by one gateway each, which are their only nodes: a lane and nothing else.
func (l *Lab) JoinBare() error {
	return l.joinNodes(func(n *Node) bool { return n == n.cluster.Nodes[1] })
}

// JoinWithout has the clusters joined as Join does, without some nodes, which are not there yet.
func (l *Lab) JoinWithout(late ...*Node) error {
	return l.joinNodes(func(n *Node) bool { return !slices.Contains(late, n) })
}

func (l *Lab) joinNodes(part func(*Node) bool) error {
	if err := l.Keys(); err != nil {
		return err
	}
	for _, c := range l.Clusters() {
		s := l.Site(c)
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n site.Node) bool { return !part(c.node(n.Name)) })
		for i := range s.Remotes {
			s.Remotes[i].Gateways = slices.DeleteFunc(s.Remotes[i].Gateways, func(g site.Gateway) bool {
				return !slices.ContainsFunc(l.Nodes(), func(n *Node) bool { return n.Name == g.Name && part(n) })
			})
		}
		if err := l.Tell(c, s); err != nil {
			return err
		}
		for _, n := range c.Nodes {
			if !part(n) {
				continue
			}
			if n.Agent == nil {
				if err := l.Start(n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Logs are the last lines of all agents.
func (l *Lab) Logs() string {
	var text strings.Builder
	for _, n := range l.Nodes() {
		if n.Agent != nil {
			lines := strings.Split(strings.TrimSpace(n.Agent.Log()), "\n")
			fmt.Fprintf(&text, "%s:\n%s\n", n.Name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
	return text.String()
}
