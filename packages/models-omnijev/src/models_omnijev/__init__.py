"""OmniJev: decisions about images, options as branches behind one shared prefix."""
