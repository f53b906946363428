package fabric

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Contexts writes a kubeconfig with the contexts home, which is the current one,
// and west, each with all rights on its cluster, and returns its path. The file
// goes with the clusters.
func (f *Fabric) Contexts() (string, error) {
	all := clientcmdapi.NewConfig()
	for _, cluster := range []*testbed.Cluster{f.Home, f.West} {
		config, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
		if err != nil {
			return "", fmt.Errorf("read the kubeconfig of %s: %w", cluster.Name(), err)
		}
		current := config.Contexts[config.CurrentContext]
		if current == nil {
			return "", fmt.Errorf("the kubeconfig of %s has no current context", cluster.Name())
		}
		name := cluster.Name()
		all.Clusters[name] = config.Clusters[current.Cluster]
		all.AuthInfos[name] = config.AuthInfos[current.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	all.CurrentContext = f.Home.Name()
	content, err := clientcmd.Write(*all)
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig of both clusters: %w", err)
	}
	return f.Home.WriteFile("contexts.kubeconfig", content)
}
