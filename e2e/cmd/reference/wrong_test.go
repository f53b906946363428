package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	logsapi "k8s.io/component-base/logs/api/v1"

	mover "github.com/lodestone-storage/lodestone/mover/app"
)

// wrong are flags of the programs with a value each that cannot be used, and what is said of it. Those of the plugin are tried in
// kubectl-lodestone/cmd.
var wrong = []struct{ command, flags, says string }{
	{"lodestone-provisioner", "--cluster-id=Home", "give up to 40 lower-case letters"},
	{"lodestone-provisioner", "--forced-deletion-margin=-1s", "--forced-deletion-margin"},
	{"lodestone-provisioner", "--http-address=mars", `--http-address "mars" is no address: give [HOST]:PORT`},
	{"lodestone-provisioner", "--kubeconfig=/none", "/none"},
	{"lodestone-provisioner", "--cluster-profiles-namespace=No", "--cluster-profiles-namespace"},
	{"lodestone-provisioner", "--label-moving-namespaces=maybe", `invalid argument "maybe"`},
	{"lodestone-provisioner", "--leader-elect=maybe", `invalid argument "maybe"`},
	{"lodestone-provisioner", "--lease-duration=1s", "give at least 3s"},
	{"lodestone-provisioner", "--max-moves=0", "--max-moves"},
	{"lodestone-provisioner", "--max-moves-per-namespace=11", "--max-moves-per-namespace"},
	{"lodestone-provisioner", "--move-settling=-1s", "--move-settling"},
	{"lodestone-provisioner", "--mover-image=", "--mover-image"},
	{"lodestone-provisioner", "--mover-networks=10.0.0.1", "--mover-networks"},
	{"lodestone-provisioner", "--mover-scratch=much", "--mover-scratch"},
	{"lodestone-provisioner", "--namespace=No", "is not the name of a namespace"},
	{"lodestone-provisioner", "--probe-interval=0s", "--probe-interval"},
	{"lodestone-provisioner", "--publish-capacity=maybe", `invalid argument "maybe"`},
	{"lodestone-provisioner", "--refusal-period=0s", "--refusal-period"},
	{"lodestone-provisioner", "--storage-namespace=No", "--storage-namespace"},
	{"lodestone-provisioner", "--workers=0", "--workers"},

	{"lodestone-extender", "--allow-plain-http=maybe", `invalid argument "maybe"`},
	{"lodestone-extender", "--client-ca-file=/none", "--tls-cert-file"},
	{"lodestone-extender", "--client-name=kube-scheduler", "--client-ca-file"},
	{"lodestone-extender", "--http-address=:99999", "is no address"},
	{"lodestone-extender", "--kubeconfig=/none", "/none"},
	{"lodestone-extender", "--listen=mars", "is no address"},
	{"lodestone-extender", "--max-staleness=0s", "it must be positive"},
	{"lodestone-extender", "--shutdown-grace=-1s", "it must not be negative"},
	{"lodestone-extender", "--tls-cert-file=/none", "--tls-private-key-file"},
	{"lodestone-extender", "--tls-private-key-file=/none", "--tls-cert-file"},
	{"lodestone-extender certificates", "--authority-duration=1m", "give at least 1h"},
	{"lodestone-extender certificates", "--authority-namespace=No", "is no name"},
	{"lodestone-extender certificates", "--client-duration=1m", "give at least 1h"},
	{"lodestone-extender certificates", "--client-name=", "--client-name is empty"},
	{"lodestone-extender certificates", "--host=a,", "--host is empty"},
	{"lodestone-extender certificates", "--kubeconfig=/none", "/none"},
	{"lodestone-extender certificates", "--namespace=No", "is no name"},
	{"lodestone-extender certificates", "--server-duration=1m", "give at least 1h"},
	{"lodestone-extender certificates", "--service=No", "is no name"},
	{"lodestone-extender certificates", "--webhook-service=No", "is no name"},
	{"lodestone-extender webhook", "--http-address=mars", "is no address"},
	{"lodestone-extender webhook", "--kubeconfig=/none --tls-cert-file=/none --tls-private-key-file=/none", "/none"},
	{"lodestone-extender webhook", "--listen=", "--listen is empty"},
	{"lodestone-extender webhook", "--tls-cert-file=/none", "give --tls-cert-file and --tls-private-key-file"},
	{"lodestone-extender webhook", "--tls-private-key-file=/none", "give --tls-cert-file and --tls-private-key-file"},

	{"lodestone-virtualnode", "--cluster-id=home", "other than \"home\""},
	{"lodestone-virtualnode", "--heartbeat-interval=0s", "--heartbeat-interval"},
	{"lodestone-virtualnode", "--http-address=mars", "is no address"},
	{"lodestone-virtualnode", "--kubeconfig=/none --node-ip=10.0.0.1", "/none"},
	{"lodestone-virtualnode", "--kubelet-address=mars", "--kubelet-address"},
	{"lodestone-virtualnode", "--kubelet-ports-from=99999", "--kubelet-ports-from"},
	{"lodestone-virtualnode", "--leader-elect=maybe", `invalid argument "maybe"`},
	{"lodestone-virtualnode", "--lease-duration=1s", "give at least 3s"},
	{"lodestone-virtualnode", "--multi-cluster-services=maybe", `invalid argument "maybe"`},
	{"lodestone-virtualnode", "--namespace=No", "is not the name of a namespace"},
	{"lodestone-virtualnode", "--node-ip=mars", "--node-ip"},
	{"lodestone-virtualnode", "--probe-interval=0s", "--probe-interval"},

	{"lodestone-remote-agent", "--away-after=0s", "--away-after"},
	{"lodestone-remote-agent", "--http-address=mars", "is no address"},
	{"lodestone-remote-agent", "--kubeconfig=/none", "/none"},
	{"lodestone-remote-agent", "--leader-elect=maybe", `invalid argument "maybe"`},
	{"lodestone-remote-agent", "--lease-duration=1s", "give at least 3s"},
	{"lodestone-remote-agent", "--namespace=No", "is not the name of a namespace"},
	{"lodestone-remote-agent", "--settle-time=-1s", "--settle-time"},
	{"lodestone-remote-agent", "--workers=0", "--workers"},

	{"lodestone-network agent", "--connections=0", "give 1 to 64"},
	{"lodestone-network agent", "--http-address=mars", "is no address"},
	{"lodestone-network agent", "--kubeconfig=/none --node=a --namespace=a --http-address=", "/none"},
	{"lodestone-network agent", "--key-age=59m", "give 1h or more, or 0"},
	{"lodestone-network agent", "--listen=mars", "is no address"},
	{"lodestone-network agent", "--namespace=", "--namespace is missing"},
	{"lodestone-network agent", "--node=", "--node is missing"},
	{"lodestone-network agent", "--pod-cidrs=10.244.1.0/16", "the range is 10.244.0.0/16"},
	{"lodestone-network agent", "--pod-cidrs=fe80::/64", "none has an address of fe80::/10"},
	{"lodestone-network agent", "--pod-cidrs=10.244.0.0/16 --site=/here", "have podRanges in that file"},
	{"lodestone-network agent", "--site=here", "is not the absolute path of a file"},
	{"lodestone-network agent", "--state=here", "is not the absolute path of a directory"},
	{"lodestone-network agent", "--tenants=maybe", `invalid argument "maybe"`},
	{"lodestone-network agent", "--wireguard-port=65001", "give 1 to 65000, or 0 for none"},
	{"lodestone-network check", "--address=mars", "is no address"},
	{"lodestone-network check", "--to=mars --address=10.0.0.1", "is no address"},
	{"lodestone-network check", "--wait=soon", `invalid argument "soon"`},
	{"lodestone-network home-api", "--kubeconfig=/none --namespace=a", "/none"},
	{"lodestone-network home-api", "--listen=mars", "is no address"},
	{"lodestone-network home-api", "--listen=", "--listen is empty"},
	{"lodestone-network home-api", "--namespace=", "--namespace is missing"},
	{"lodestone-network key", "--rotate=maybe", `invalid argument "maybe"`},
	{"lodestone-network key", "--state=/proc/none", "/proc/none"},
	{"lodestone-network key", "--wireguard=maybe", `invalid argument "maybe"`},
	{"lodestone-network probe", "--address=mars", "is no address"},
	{"lodestone-network probe", "--address=10.0.0.1,10.0.0.2", "one of IPv4 and one of IPv6"},
	{"lodestone-network probe", "--http-address=mars", "is no address"},
	{"lodestone-network probe", "--kubeconfig=/none --pod=a --node=a --address=10.0.0.1 --namespace=a --http-address=", "/none"},
	{"lodestone-network probe", "--namespace=", "--namespace is missing"},
	{"lodestone-network probe", "--node=", "--node is missing"},
	{"lodestone-network probe", "--pod=", "--pod is missing"},
	{"lodestone-network probe", "--tenants=maybe", `invalid argument "maybe"`},
	{"lodestone-network remove", "--state=here", "is not the absolute path of a directory"},

	{"lodestone-mover send", "--block=maybe", `invalid argument "maybe"`},
	{"lodestone-mover send", "--move=", "--move is missing"},
	{"lodestone-mover send", "--rootless=maybe", `invalid argument "maybe"`},
	{"lodestone-mover send", "--scratch=here", "--scratch=here is not the absolute path of a directory"},
	{"lodestone-mover send", "--scratch-limit=much", `invalid argument "much"`},
	{"lodestone-mover send", "--snapshot=maybe", `invalid argument "maybe"`},
	{"lodestone-mover send", "--store-from=much", `invalid argument "much"`},
	{"lodestone-mover send", "--volume=here", "--volume=here is not the absolute path of a directory"},
	{"lodestone-mover send", "--volume=/none --block", "--volume=/none is not the absolute path of a block device"},
	{"lodestone-mover receive", "--block=maybe", `invalid argument "maybe"`},
	{"lodestone-mover receive", "--move=", "--move is missing"},
	{"lodestone-mover receive", "--no-snapshot=maybe", `invalid argument "maybe"`},
	{"lodestone-mover receive", "--rootless=maybe", `invalid argument "maybe"`},
	{"lodestone-mover receive", "--scratch=/proc/none", "--scratch=/proc/none is not the absolute path of a directory"},
	{"lodestone-mover receive", "--scratch-limit=-1", `invalid argument "-1"`},
	{"lodestone-mover receive", "--store-from=much", `invalid argument "much"`},
	{"lodestone-mover receive", "--volume=/none", "--volume=/none is not the absolute path of a directory"},
}

// free are flags that no value is wrong for before the program uses it. The provisioner gives them to movers, no person does.
var free = map[string]string{
	"lodestone-mover send --control-address": "listened at",
	"lodestone-mover send --data-address":    "listened at",
	"lodestone-mover send --keys":            "read once the mover is set up, as root",
	"lodestone-mover send --peer":            "dialled",
	"lodestone-mover send --repository":      "used only if the keys say so",
	"lodestone-mover receive --data-address": "listened at",
	"lodestone-mover receive --keys":         "read once the mover is set up, as root",
	"lodestone-mover receive --repository":   "used only if the keys say so",
}

// programs are all programs with their commands: those of docs/flags.md, and the mover, which people do not start.
func programs() map[string]*cobra.Command {
	all, root := commands(), mover.NewCommand()
	all[root.Name()] = root
	for _, sub := range root.Commands() {
		all[root.Name()+" "+sub.Name()] = sub
	}
	return all
}

func TestEachFlagOfTheProgramsIsTriedWrong(t *testing.T) {
	tried := map[string]bool{}
	for _, row := range wrong {
		flags := strings.Fields(row.flags)
		name, _, _ := strings.Cut(flags[0], "=")
		tried[row.command+" "+name] = true
		t.Run(row.command+" "+row.flags, func(t *testing.T) {
			logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
			words := strings.Fields(row.command)
			command := programs()[words[0]]
			require.NotNil(t, command)
			command.SetArgs(append(slices.Clone(words[1:]), flags...))
			command.SetOut(io.Discard)
			command.SetErr(io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			assert.ErrorContains(t, command.ExecuteContext(ctx), row.says)
		})
	}
	known := map[string]bool{}
	for name, command := range programs() {
		if strings.HasPrefix(name, "kubectl") {
			continue
		}
		for _, flag := range own(command) {
			of := name + " --" + flag.Name
			known[of] = true
			assert.NotEqual(t, tried[of], free[of] != "", "%s is to be tried with a value that cannot be used, or else to be free", of)
		}
	}
	for of := range free {
		assert.True(t, known[of], "there is no flag %s", of)
	}
}
