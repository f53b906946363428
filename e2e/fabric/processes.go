package fabric

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// readyTimeout bounds the start of a program.
const readyTimeout = 30 * time.Second

// provisionerAccount is the provisioner's ServiceAccount, as deploy/base makes it.
const provisionerAccount = "lodestone-provisioner"

// RunProvisioner runs the provisioner built at path as a process, under a name of
// its own, with the rights of its ServiceAccount and leader election, and waits
// until it is ready. A replica that does not lead is ready too. Flags go before
// those that suit a test bed.
func (f *Fabric) RunProvisioner(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	return run(ctx, f.Home, name, path, System, provisionerAccount, append([]string{
		"--leader-elect=true", "--lease-duration=8s", "--probe-interval=1s", "--refusal-period=5s", "--forced-deletion-margin=1s", "--move-settling=2s", "--v=2"}, flags...)...)
}

// ProvisionerKubeconfig returns a kubeconfig of home with the rights of the
// provisioner's ServiceAccount.
func (f *Fabric) ProvisionerKubeconfig(ctx context.Context) ([]byte, error) {
	return f.Home.ServiceAccountKubeconfig(ctx, System, provisionerAccount)
}

// AgentKubeconfig returns a kubeconfig of west with the rights of the remote agent's
// ServiceAccount.
func (f *Fabric) AgentKubeconfig(ctx context.Context) ([]byte, error) {
	return f.West.ServiceAccountKubeconfig(ctx, agentNamespace, agentAccount)
}

// RunExtender runs the extender built at path as a process where kube-scheduler
// looks for it, with the rights of its ServiceAccount, and waits until it is ready.
func (f *Fabric) RunExtender(ctx context.Context, name, path string) (*testbed.Program, error) {
	return run(ctx, f.Home, name, path, System, "lodestone-extender", "--listen="+f.extender, "--shutdown-grace=100ms")
}

// RunAgent runs the remote agent built at path as a process in west, under a name
// of its own, with the rights of its ServiceAccount and leader election, and
// waits until it is ready. A replica that does not lead is ready too.
func (f *Fabric) RunAgent(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	return run(ctx, f.West, name, path, agentNamespace, agentAccount, append([]string{
		"--leader-elect=true", "--lease-duration=8s", "--settle-time=1s", "--v=2"}, flags...)...)
}

func run(ctx context.Context, cluster *testbed.Cluster, name, path, namespace, account string, flags ...string) (*testbed.Program, error) {
	content, err := cluster.ServiceAccountKubeconfig(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cluster.WriteFile(name+".kubeconfig", content)
	if err != nil {
		return nil, err
	}
	status, err := cluster.ReserveAddress()
	if err != nil {
		return nil, fmt.Errorf("find an address for %s: %w", name, err)
	}
	flags = append(flags, "--kubeconfig="+kubeconfig, "--http-address="+status)
	program, err := cluster.StartProgram(name, path, flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	return program, program.AwaitHTTP(ctx, "http://"+status+"/readyz")
}

// Leads reports whether a provisioner that RunProvisioner started has become the
// leader, which it says in its log.
func Leads(provisioner *testbed.Program) (bool, error) {
	output, err := provisioner.Output()
	return strings.Contains(output, `"Leading"`), err
}
