// Package plugin tests the kubectl plugin as users run it: a process of its own,
// with a kubeconfig of several contexts, on real control planes.
package plugin

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

var (
	// bed is shared by the tests of this package; each one peers as it needs and
	// unpeers after. Without control planes it is empty, so that tests get as far
	// as to skip.
	bed = &fabric.Fabric{}
	// program is the path of the plugin, kubeconfig that of a file with the
	// contexts home and west, home-again and west-again, with all rights, and
	// home-guest, home-reader and so on, users with the rights that a test gives.
	program, kubeconfig string
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if program, err = bed.BuildPlugin(ctx); err != nil {
			return err
		}
		if err := writeContexts(); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartVirtualNode(ctx); err != nil {
			return err
		}
		_, err = bed.StartAgent(ctx)
		return err
	})
}

// writeContexts writes the kubeconfig of the tests.
func writeContexts() error {
	path, err := bed.Contexts()
	if err != nil {
		return err
	}
	all, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("read the kubeconfig of both clusters: %w", err)
	}
	for _, name := range []string{"home", "west"} {
		all.Contexts[name+"-again"] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		for _, who := range []string{"guest", "reader"} {
			user := all.AuthInfos[name].DeepCopy()
			user.Impersonate, user.ImpersonateGroups = who, []string{"system:authenticated"}
			all.AuthInfos[name+"-"+who] = user
			all.Contexts[name+"-"+who] = &clientcmdapi.Context{Cluster: name, AuthInfo: name + "-" + who}
		}
	}
	content, err := clientcmd.Write(*all)
	if err != nil {
		return fmt.Errorf("write the kubeconfig of the tests: %w", err)
	}
	kubeconfig, err = bed.Home.WriteFile("plugin.kubeconfig", content)
	return err
}
