package testbed

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

func (c *Cluster) etcdArgs() []string {
	client, peer := "http://"+c.ports.etcd.address(), "http://"+c.ports.etcdPeer.address()
	return []string{
		"--name=" + c.Name(),
		"--data-dir=" + c.dir.file("etcd"),
		"--unsafe-no-fsync", // the data is thrown away, so it need not survive a power cut
		"--log-level=warn",
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name() + "=" + peer,
	}
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=http://" + c.ports.etcd.address(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + c.ports.apiServer.String(),
		"--endpoint-reconciler-type=none", // it refuses loopback addresses
		"--service-cluster-ip-range=10.96.0.0/16",
		"--cert-dir=" + c.dir.file("apiserver"),
		"--tls-cert-file=" + c.dir.file(servingCertificateFile),
		"--tls-private-key-file=" + c.dir.file(servingKeyFile),
		"--client-ca-file=" + c.dir.file(caCertificateFile),
		"--kubelet-client-certificate=" + c.dir.file(kubeletCertificateFile),
		"--kubelet-client-key=" + c.dir.file(kubeletKeyFile),
		"--token-auth-file=" + c.dir.file(tokensFile),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.dir.file(accountKeyFile),
		"--service-account-signing-key-file=" + c.dir.file(accountKeyFile),
		"--profiling=false",
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.APIServerArgs)
}

func (c *Cluster) controllerManagerArgs() []string {
	kubeconfig := c.dir.file(controllerManager + ".kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.ports.controllerManager.String(),
		"--cert-dir=",
		"--leader-elect=false",
		"--controllers=*",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.dir.file(accountKeyFile),
		"--root-ca-file=" + c.dir.file(caCertificateFile),
		"--cluster-signing-cert-file=" + c.dir.file(caCertificateFile),
		"--cluster-signing-key-file=" + c.dir.file(caKeyFile),
		"--allocate-node-cidrs=false",
		"--flex-volume-plugin-dir=" + c.dir.file("flex"),
		"--node-monitor-period=1s",
		"--node-monitor-grace-period=" + c.cfg.nodeGracePeriod().String(),
		"--profiling=false",
	}
	if c.cfg.ControllerManagerQPS > 0 {
		args = append(args, fmt.Sprintf("--kube-api-qps=%g", c.cfg.ControllerManagerQPS))
	}
	if c.cfg.ControllerManagerBurst > 0 {
		args = append(args, "--kube-api-burst="+strconv.Itoa(c.cfg.ControllerManagerBurst))
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.ControllerManagerArgs)
}

func (c *Cluster) schedulerArgs() []string {
	kubeconfig := c.dir.file(scheduler + ".kubeconfig")
	args := []string{
		"--config=" + c.dir.file(schedulerConfigFile),
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.ports.scheduler.String(),
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.SchedulerArgs)
}

func (c *Cluster) featureGateArgs() []string {
	if len(c.cfg.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.cfg.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.cfg.FeatureGates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}
