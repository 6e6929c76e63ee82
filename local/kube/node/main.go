// Command node holds what Kubernetes itself runs on a node: `node kubelet [flags]`, `node kube-proxy [flags]`.
//
// It holds nothing of ours but this switch. It is a program of its own, beside the control plane's, since the embedded cluster needs
// only that one.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kubelet":    func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy": proxy.NewProxyCommand,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: node kubelet | kube-proxy [flags]")
		os.Exit(2)
	}
	build, known := components[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "node: no component %q: use one of kubelet | kube-proxy\n", os.Args[1])
		os.Exit(2)
	}
	os.Args = os.Args[1:] // each component finds its own name first, as if started by it
	os.Exit(cli.Run(build()))
}
