package crash

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
)

const (
	// administered begins the paths of requests of the plugin; the namespace of its case
	// follows.
	administered = "/of/"
	// runs is how often a command is run at most until it says that all is done.
	runs = 4
	// atOnce is how many cases a batch has of flows of which few run at once.
	// patience is how long a case of a command, or of the agent, may take: each reads the
	// same again and again, and namespaces go slowly.
	atOnce   = 30
	patience = 3 * time.Minute
)

// command is what an administrator runs until it is done. Only Play uses it, but for
// kill.
type command struct {
	kill context.CancelFunc
	runs int
	done bool
	// wrong is set when a run ended as none may.
	wrong error
}

// setKill says how a run is killed, nil while none runs.
func (c *Case) setKill(kill context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.command.kill = kill
}

// killCommand ends a run, whose requests are refused from now on.
func (c *Case) killCommand() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.command.kill != nil {
		c.command.kill()
	}
}

// administer returns what runs a command of the plugin: again if it failed or was killed,
// and through the second gate after a takeover.
func administer(args func(c *Case) []string) func(context.Context, *World, *Case, *View) error {
	return func(ctx context.Context, w *World, c *Case, _ *View) error {
		gate := 1
		if c.faultHappened() && c.Fault.info().kind == replaced {
			gate = 2
		}
		if c.command.done || c.command.wrong != nil || gate == 1 && c.isCut() {
			return nil
		}
		if c.command.runs++; c.command.runs > runs {
			c.command.wrong = fmt.Errorf("the command was run %d times in vain", runs)
			return c.command.wrong
		}
		kubeconfig, err := w.contexts(c, gate)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c.setKill(cancel)
		var out, stderr bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &stderr}
		code := cmd.Run(ctx, streams, append(args(c), "--kubeconfig="+kubeconfig, "--timeout=30s")...)
		c.setKill(nil)
		switch {
		case code == 0:
			c.command.done = true
		case code != 1 || strings.Count(stderr.String(), "error: ") != 1:
			c.command.wrong = fmt.Errorf("a run of the command ended with code %d: %s", code, stderr.String())
		}
		return nil
	}
}

// administered says what is wrong with the command of a case, nil if it is done.
func (c *Case) administered() error {
	switch {
	case c.command.wrong != nil:
		return c.command.wrong
	case !c.command.done:
		return errors.New("the command is not done")
	}
	return nil
}

// contexts writes the kubeconfig by which the plugin reaches both clusters through a
// gate, and returns its path. Each of its requests says of which case it is.
func (w *World) contexts(c *Case, gate int) (string, error) {
	config := w.users.DeepCopy()
	for name, cluster := range config.Clusters {
		way := w.gates[gate].ways[name]
		cluster.Server = way.server.URL + administered + c.Namespace
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: way.server.Certificate().Raw})
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", c.Namespace, err)
	}
	return w.Bed.Home.WriteFile(fmt.Sprintf("%s-%d.kubeconfig", c.Namespace, gate), content)
}

// administered passes a request of the plugin on, or has it meet its fault; it is false
// for a request of anybody else. All that the plugin asks counts.
func (w *way) administered(answer http.ResponseWriter, original *http.Request) bool {
	of, ok := strings.CutPrefix(original.URL.Path, administered)
	if !ok {
		return false
	}
	namespace, path, _ := strings.Cut(of, "/")
	original.URL.Path = "/" + path
	c := w.gate.ledger.named(namespace)
	body, err := io.ReadAll(original.Body)
	if err != nil || c == nil {
		abort()
	}
	original.Body = io.NopCloser(bytes.NewReader(body))
	call := Call{Cluster: w.cluster, Verb: "get", Object: "discovery"}
	asked, known := parse(original.Method, original.URL)
	if asked.resource != "" {
		call.Verb, call.Object = asked.verb, asked.object(w.cluster, w.gate.ledger.isVirtual(asked.name))
	}
	if !known && asked.resource != "" {
		call.Verb = "list"
	}
	if original.URL.Query().Has("dryRun") {
		call.Object += ".trial"
	}
	w.meet(c, answer, &held{way: w, request: original, body: body}, true, call)
	return true
}
