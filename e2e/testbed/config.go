package testbed

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Config says what one cluster is like. The zero value of each field but Name is usable.
type Config struct {
	// Name names the cluster in logs, directories and kubeconfig contexts; a DNS label.
	Name string

	// Extenders are URL prefixes that kube-scheduler calls for filter, prioritize and
	// preempt, with node names only, ignorable, without TLS. They are added to those of SchedulerConfig.
	Extenders []string

	// SchedulerConfig is the path of a KubeSchedulerConfiguration to run with. Its client
	// connection and leader election are replaced by those that this cluster needs.
	SchedulerConfig string

	// ControllerManagerQPS and ControllerManagerBurst bound the API requests of each controller.
	// Zero keeps the defaults of kube-controller-manager, 20 and 30.
	ControllerManagerQPS   float32
	ControllerManagerBurst int

	// FeatureGates are set in all programs of the control plane.
	FeatureGates map[string]bool

	// NodeGracePeriod is how long a node may be silent before it is NotReady; zero means 8 s.
	// Hollow nodes must renew their leases several times within it.
	NodeGracePeriod time.Duration

	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are appended to the command lines.
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string
}

func (c Config) validate() error {
	if problems := validation.IsDNS1123Label(c.Name); len(problems) > 0 {
		return fmt.Errorf("cluster name %q: %s", c.Name, strings.Join(problems, "; "))
	}
	if c.ControllerManagerQPS < 0 || c.ControllerManagerBurst < 0 {
		return fmt.Errorf("cluster %s: client rates of the controller manager must not be negative", c.Name)
	}
	if c.NodeGracePeriod < 0 {
		return fmt.Errorf("cluster %s: the grace period of nodes must not be negative", c.Name)
	}
	return nil
}

func (c Config) nodeGracePeriod() time.Duration {
	if c.NodeGracePeriod == 0 {
		return 8 * time.Second
	}
	return c.NodeGracePeriod
}

func validateAll(configs []Config) error {
	if len(configs) == 0 {
		return fmt.Errorf("no cluster to start: give at least one Config")
	}
	seen := map[string]bool{}
	for _, config := range configs {
		if err := config.validate(); err != nil {
			return err
		}
		if seen[config.Name] {
			return fmt.Errorf("two clusters are named %s", config.Name)
		}
		seen[config.Name] = true
	}
	return nil
}
