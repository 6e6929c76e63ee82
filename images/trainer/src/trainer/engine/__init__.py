"""Training with parameter servers: asynchronous mode on TensorFlow's ParameterServerStrategy and ClusterCoordinator.

::

    replica      role from the environment -> chief | server
    server       a PS or worker: one tf.distribute.Server without Keras, ended by DONE, or by its chief's absence
    chief        the whole life of a run on its chief: check the model, wait for peers, train, say DONE
    session      one strategy with its model, optimizer and data
    anew         after a lost PS: the chief's process starts itself again
    loop         schedules closures, counts steps, saves, reports
    checkpoints  TensorFlow's files in S3, marker last
    plan · generation · progress · runtime · quiet · stall · peers    what each of them says
    user_model · objective · optimizers · records · proof · training_step    what the user gives, turned into one training step
    evaluation · saved_model    what comes of it

It is kept small: the engine that replaces it keeps the neighbours (user_model, objective, records, proof, peers, progress).
"""
