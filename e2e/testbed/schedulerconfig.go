package testbed

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

const schedulerConfigFile = "scheduler.yaml"

// schedulerConfig returns the KubeSchedulerConfiguration of a cluster: the template,
// if there is one, connected to this cluster and with the extenders added.
func schedulerConfig(template []byte, kubeconfig string, extenders []string) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(template, &config); err != nil {
		return nil, fmt.Errorf("read the scheduler configuration: %w", err)
	}
	if len(config) == 0 {
		config["apiVersion"] = "kubescheduler.config.k8s.io/v1"
		config["kind"] = "KubeSchedulerConfiguration"
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = kubeconfig
	config["clientConnection"] = connection
	config["leaderElection"] = map[string]any{"leaderElect": false}
	all, _ := config["extenders"].([]any)
	for _, url := range extenders {
		all = append(all, map[string]any{
			"urlPrefix":        url,
			"filterVerb":       "filter",
			"prioritizeVerb":   "prioritize",
			"preemptVerb":      "preempt",
			"weight":           3,
			"nodeCacheCapable": true,
			"ignorable":        true,
			"enableHTTPS":      false,
			"httpTimeout":      "5s",
		})
	}
	if len(all) > 0 {
		config["extenders"] = all
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the scheduler configuration: %w", err)
	}
	return content, nil
}

func (c *Cluster) writeSchedulerConfig() error {
	var template []byte
	if c.cfg.SchedulerConfig != "" {
		var err error
		if template, err = os.ReadFile(c.cfg.SchedulerConfig); err != nil {
			return fmt.Errorf("read the scheduler configuration: %w", err)
		}
	}
	content, err := schedulerConfig(template, c.dir.file(scheduler+".kubeconfig"), c.cfg.Extenders)
	if err != nil {
		return err
	}
	return c.dir.write(schedulerConfigFile, content)
}
