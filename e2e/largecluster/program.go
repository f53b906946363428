package largecluster

import (
	"context"
	"fmt"
	"net"
	"os/exec"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// BuildExtender builds the extender at path as it is shipped, but for its version.
func BuildExtender(ctx context.Context, path string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/lodestone-storage/lodestone/extender")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the extender: %w\n%s", err, output)
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig at path for a cluster that is served at url.
func WriteKubeconfig(path, url string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["home"] = &clientcmdapi.Cluster{Server: url}
	config.Contexts["home"] = &clientcmdapi.Context{Cluster: "home"}
	config.CurrentContext = "home"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// FreeAddresses returns n addresses on loopback that nobody listens on.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listeners = append(listeners, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
