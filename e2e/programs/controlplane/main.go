// Command controlplane is etcd, the Kubernetes control plane and kubectl in one
// multi-call program, built from Go modules, so that a machine with nothing but
// Go can run real clusters on loopback.
//
// The first argument names the program: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler or kubectl. The rest are that
// program's own arguments. One more, extender-client, makes the calls that
// kube-scheduler makes to its extenders, for benchmarks.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "controlplane: name a program: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl")
		os.Exit(2)
	}
	program := os.Args[1]
	os.Args = append([]string{program}, os.Args[2:]...)
	if program == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	if program == "extender-client" {
		os.Exit(runExtenderClient())
	}
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	newCommand, ok := commands[program]
	if !ok {
		fmt.Fprintf(os.Stderr, "controlplane: there is no program %q in this binary\n", program)
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}
